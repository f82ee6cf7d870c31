/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Replacing memory with the help of others: threads, on whose stacks the buffer is; other
 * processes; a userfaultfd of the program's own.
 */
#ifndef STALE_OTHERS_H
#define STALE_OTHERS_H

#include "stale-mapped.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

/* --- stacks ------------------------------------------------------------------ */

/* glibc keeps up to 40 MiB of stacks that nobody uses for the next thread. */
#define KEPT_STACK     ((size_t)16 << 20)
#define UNMAPPED_STACK ((size_t)64 << 20)

/* The thread on whose stack the buffer is. */
static struct {
	pthread_t thread;
	sem_t ready, end;
	char *buffer;
} host;

static void *lend_stack(void *unused)
{
	_Alignas(4096) char buffer[BYTES];

	host.buffer = buffer;
	sem_post(&host.ready);
	sem_wait(&host.end);
	return unused;
}

static enum result make_on_stack(struct place *place, size_t n_bytes)
{
	pthread_attr_t attributes;

	sem_init(&host.ready, 0, 0);
	sem_init(&host.end, 0, 0);
	pthread_attr_init(&attributes);
	if (pthread_attr_setstacksize(&attributes, n_bytes) ||
	    pthread_create(&host.thread, &attributes, lend_stack, NULL))
		return FAILED;
	sem_wait(&host.ready);
	place->buffer = place->block = host.buffer;
	return DONE;
}

MAKES(make_on_kept_stack, make_on_stack(place, KEPT_STACK))

MAKES(make_on_unmapped_stack, make_on_stack(place, UNMAPPED_STACK))

static bool end_host(void)
{
	pthread_t thread = host.thread;

	host.thread = 0;
	sem_post(&host.end);
	return thread && !pthread_join(thread, NULL);
}

/* Of the stack it keeps, glibc drops the pages. */
static enum result replace_kept_stack(struct place *place, call by)
{
	struct place next;

	(void)by;
	if (!end_host() || make_on_kept_stack(&next))
		return FAILED;
	return next.buffer == place->buffer ? DONE : ELSEWHERE;
}

REPLACES(replace_unmapped_stack, succeeded(end_host()))

/* --- other processes --------------------------------------------------------- */

/* What one process may ask for another. */
static int page_out_parent(const struct place *place)
{
	struct iovec range = {place->buffer, place->n_bytes};
	int parent = (int)syscall(SYS_pidfd_open, getppid(), 0);

	return syscall(SYS_process_madvise, parent, &range, 1, MADV_PAGEOUT, 0) < 0;
}

MAKES(make_with_adviser, make_mapped(place) ?: keep_child(page_out_parent, place))

/* And for itself, since Linux 6.13. */
static enum result replace_by_process(struct place *place, call by)
{
	struct iovec range = {place->buffer, place->n_bytes};
	int self = (int)raw_call(SYS_pidfd_open, getpid(), 0, 0, 0, 0);
	bool done = by(SYS_process_madvise, self, (long)&range, 1, MADV_DONTNEED, 0) ==
		    (long)place->n_bytes;

	raw_call(SYS_close, self, 0, 0, 0, 0);
	return succeeded(done);
}

/* Its own copy of the mapping, not the parent's. */
static int replace_own_copy(const struct place *place)
{
	if (raw_call(SYS_munmap, (long)place->buffer, (long)place->n_bytes, 0, 0, 0) ||
	    !map_at(place->buffer, place->n_bytes, ANONYMOUS | MAP_FIXED, -1, raw_call))
		return 1;
	memset(place->buffer, 1, place->n_bytes);
	return 0;
}

REPLACES(replace_in_child, in_child(replace_own_copy, place))

/* --- a userfaultfd of the program's own -------------------------------------- */

static enum result watch_it_myself(const struct place *place)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {
		.range = {.start = (uintptr_t)place->buffer, .len = place->n_bytes},
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	return succeeded(!ioctl(fd, UFFDIO_API, &api) && !ioctl(fd, UFFDIO_REGISTER, &range));
}

MAKES(make_watched, make_mapped(place) ?: watch_it_myself(place))

/* Only after a message has gone through it. */
REPLACES(replace_watched_late, watch_it_myself(place) ?: replace_unmap(place, by))

#endif
