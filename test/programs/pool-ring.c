/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool-ring FILE: a pool whose memory is registered with io_uring, as its fixed buffers, by
 * on_segment. Slices of it, also of what the pool grew by, are written to a file and read back
 * through those buffers.
 *
 *     segments N slices N wrong N gone N
 *
 * Ends with status 2 if anything fails that must not, and with 77 where the kernel has no
 * io_uring.
 */
#define _GNU_SOURCE
#include "preload/pinalloc.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB    ((size_t)1 << 20)
#define MOST   32u
#define SLICES 40u

static struct io_uring ring;
static struct iovec buffers[MOST];
static unsigned n_buffers, n_gone;

static void give_up(const char *what, int error)
{
	fprintf(stderr, "%s: %s\n", what, strerror(error));
	exit(2);
}

static int set_buffer(unsigned i, struct iovec buffer)
{
	int n = io_uring_register_buffers_update_tag(&ring, i, &buffer, NULL, 1);

	return n == 1 ? 0 : -n;
}

/* The kernel pins it until it is replaced by an empty one. */
static int on_segment(void *start, size_t length, int is_added, void *arg)
{
	unsigned i = 0;
	int error;

	(void)arg;
	if (!is_added) {
		while (i < n_buffers && buffers[i].iov_base != start)
			i++;
		if (i == n_buffers || set_buffer(i, (struct iovec){0}))
			give_up("buffer that goes", EINVAL);
		buffers[i].iov_base = NULL;
		n_gone++;
		return 0;
	}
	if (n_buffers == MOST)
		return ENOSPC;
	buffers[n_buffers] = (struct iovec){start, length};
	error = set_buffer(n_buffers, buffers[n_buffers]);
	if (!error)
		n_buffers++;
	return error;
}

static unsigned buffer_of(const char *p, size_t n_bytes)
{
	for (unsigned i = 0; i < n_buffers; i++) {
		const char *start = buffers[i].iov_base;

		if (start && p >= start && p + n_bytes <= start + buffers[i].iov_len)
			return i;
	}
	give_up("slice that is in no buffer", EFAULT);
	return MOST;
}

/* Returns what the kernel did. */
static int transfer(int file, char *p, size_t n_bytes, off_t offset, unsigned buffer,
		    int writes)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	struct io_uring_cqe *cqe;
	int result;

	if (writes)
		io_uring_prep_write_fixed(sqe, file, p, (unsigned)n_bytes, (__u64)offset,
					  (int)buffer);
	else
		io_uring_prep_read_fixed(sqe, file, p, (unsigned)n_bytes, (__u64)offset,
					 (int)buffer);
	io_uring_submit_and_wait(&ring, 1);
	result = io_uring_wait_cqe(&ring, &cqe);
	if (result)
		give_up("completion", -result);
	result = cqe->res;
	io_uring_cqe_seen(&ring, cqe);
	return result;
}

static size_t length_of(unsigned i)
{
	return MIB / 2 + i * 4096 * 13;
}

static unsigned write_and_read(struct pinalloc_pool *pool, int file)
{
	char *from[SLICES], *to, *expected = malloc(length_of(SLICES));
	unsigned wrong = 0;

	for (unsigned i = 0; i < SLICES; i++) {
		int n = (int)length_of(i);

		from[i] = pinalloc_pool_alloc(pool, length_of(i), 4096);
		if (!from[i])
			give_up("slice", errno);
		memset(from[i], (int)i + 1, length_of(i));
		wrong += transfer(file, from[i], length_of(i), (off_t)(i * 4 * MIB),
				  buffer_of(from[i], length_of(i)), 1) != n;
	}
	for (unsigned i = 0; i < SLICES; i++) {
		to = pinalloc_pool_alloc(pool, length_of(i), 4096);
		memset(to, 0, length_of(i));
		memset(expected, (int)i + 1, length_of(i));
		wrong += transfer(file, to, length_of(i), (off_t)(i * 4 * MIB),
				  buffer_of(to, length_of(i)), 0) != (int)length_of(i);
		wrong += memcmp(to, expected, length_of(i)) != 0;
		pinalloc_pool_free(pool, to);
		pinalloc_pool_free(pool, from[i]);
	}
	free(expected);
	return wrong;
}

int main(int argc, char **argv)
{
	struct pinalloc_pool_options options = {
		.bytes = 8 * MIB, .flags = PINALLOC_POOL_GROWS, .on_segment = on_segment};
	struct pinalloc_pool *pool;
	int file = open(argv[argc - 1], O_RDWR | O_CREAT, 0600), error;
	unsigned wrong;
	char *p;

	error = io_uring_queue_init(8, &ring, 0);
	if (error)
		return 77;
	if (file < 0 || (error = io_uring_register_buffers_sparse(&ring, MOST)))
		give_up("ring", file < 0 ? errno : -error);
	pool = pinalloc_pool_create(&options, sizeof options);
	if (!pool)
		give_up("pool", errno);
	wrong = write_and_read(pool, file);
	p = pinalloc_pool_alloc(pool, 4096, 4096);
	/* The kernel looks: what is not in the buffer it is told is refused. */
	wrong += transfer(file, p, 4096, 0, (buffer_of(p, 4096) + 1) % n_buffers, 1) != -EFAULT;
	pinalloc_pool_free(pool, p);
	if (pinalloc_pool_destroy(pool))
		give_up("destroy", EBUSY);
	printf("segments %u slices %u wrong %u gone %u\n", n_buffers, SLICES, wrong, n_gone);
	return 0;
}
