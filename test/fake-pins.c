/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pages of fake-adapter.c. With FAKE_PINS in the environment a registration pins its pages,
 * as ib_umem_get() does (FOLL_LONGTERM), by being a registered buffer of io_uring, and what a
 * key reaches is moved through these pages, whatever the process has mapped at their addresses
 * meanwhile: stale data shows, at full speed. Pages that io_uring cannot pin, of files and what
 * is read only, are moved by their addresses. A child of fork(2) has an adapter of its own.
 */
#include <config.h>

#include "test/fake-verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE	   ((uintptr_t)4096)
#define SLOTS	   16384u	      /* io_uring has no more */
#define KEYS	   (1u << 20)	      /* of keys in use these bits differ */
#define MOST_BYTES ((size_t)1 << 30)  /* of a slot */
#define PIECE	   ((size_t)64 << 10) /* that a pipe takes at once */

/* Since Linux 5.13; <linux/io_uring.h> may be older. */
enum { REGISTER_BUFFERS = 0, UPDATE_BUFFERS = 16 };
struct update {
	uint32_t first, unused;
	uint64_t buffers, tags;
	uint32_t n, unused_too;
};

/* In memory that a child finds empty. */
static struct pins {
	bool is_set_up;
	pthread_mutex_t lock;
	int fd, ends[2]; /* of a pipe, through which every byte goes */
	unsigned mask;
	_Atomic unsigned *submitted, *completed;
	struct io_uring_sqe *request;
	const struct io_uring_cqe *answers;
	unsigned n_free;
	uint16_t free_slots[SLOTS], slot_of[KEYS]; /* one more than the slot; 0: none */
} * pins;

/* A ring of one request. */
static bool make_ring(void)
{
	struct io_uring_params params = {0};
	char *ring;

	pins->fd = (int)syscall(__NR_io_uring_setup, 1, &params);
	if (pins->fd < 0)
		return false;
	/* Since Linux 5.4 both rings are one mapping. */
	ring = mmap(NULL, params.cq_off.cqes + params.cq_entries * sizeof *pins->answers,
		    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, pins->fd,
		    IORING_OFF_SQ_RING);
	pins->request = mmap(NULL, sizeof *pins->request, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_POPULATE, pins->fd, IORING_OFF_SQES);
	if (ring == MAP_FAILED || pins->request == MAP_FAILED)
		return false;
	*(uint32_t *)(ring + params.sq_off.array) = 0;
	pins->submitted = (_Atomic unsigned *)(ring + params.sq_off.tail);
	pins->completed = (_Atomic unsigned *)(ring + params.cq_off.head);
	pins->answers = (struct io_uring_cqe *)(ring + params.cq_off.cqes);
	pins->mask = params.cq_entries - 1;
	return true;
}

/* With the lock, in each process once. */
static bool set_up(void)
{
	struct iovec *none = calloc(SLOTS, sizeof *none);

	if (!make_ring() || pipe2(pins->ends, O_CLOEXEC | O_NONBLOCK) ||
	    syscall(__NR_io_uring_register, pins->fd, REGISTER_BUFFERS, none, SLOTS))
		return false;
	free(none);
	while (pins->n_free < SLOTS) {
		pins->free_slots[pins->n_free] = (uint16_t)pins->n_free;
		pins->n_free++;
	}
	return pins->is_set_up = true;
}

static void begin(void)
{
	pthread_mutex_lock(&pins->lock);
	if (!pins->is_set_up && !set_up())
		abort();
}

/* Where it does not work, a program ends with status 77 before its main(). */
void fake_pins_start(void)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;

	pins = mmap(NULL, sizeof *pins, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (pins != MAP_FAILED && !madvise(pins, sizeof *pins, MADV_WIPEONFORK) && set_up())
		return;
	dprintf(STDERR_FILENO, "io_uring: %s; see kernel.io_uring_disabled, and seccomp\n",
		strerror(errno));
	_exit(77);
}

static int set_slot(unsigned slot, uintptr_t start, size_t n_bytes)
{
	struct iovec pages = {(void *)start, n_bytes};
	struct update update = {.first = slot, .buffers = (uintptr_t)&pages, .n = 1};

	return syscall(__NR_io_uring_register, pins->fd, UPDATE_BUFFERS, &update,
		       sizeof update) < 0
		       ? errno
		       : 0;
}

/* 0, or an errno value. */
int fake_pins_add(uint32_t lkey, uintptr_t start, size_t n_bytes)
{
	int error = ENOMEM;

	if (!pins || !n_bytes)
		return 0;
	begin();
	if (n_bytes <= MOST_BYTES && pins->n_free) {
		unsigned slot = pins->free_slots[pins->n_free - 1];

		error = set_slot(slot, start, n_bytes);
		if (!error) {
			pins->n_free--;
			pins->slot_of[lkey % KEYS] = (uint16_t)(slot + 1);
		}
	}
	pthread_mutex_unlock(&pins->lock);
	return error;
}

void fake_adapter_unpin(uint32_t lkey)
{
	uint16_t *slot_of = pins ? &pins->slot_of[lkey % KEYS] : NULL;

	if (!pins)
		return;
	begin();
	if (*slot_of) {
		unsigned slot = *slot_of - 1u;

		if (set_slot(slot, 0, 0))
			abort();
		pins->free_slots[pins->n_free++] = (uint16_t)slot;
		*slot_of = 0;
	}
	pthread_mutex_unlock(&pins->lock);
}

/* Between the pages of a slot and the pipe. */
static ssize_t operate(uint8_t opcode, unsigned slot, void *addr, size_t n_bytes)
{
	unsigned answer = *pins->completed;
	ssize_t n;

	*pins->request = (struct io_uring_sqe){
		.opcode = opcode,
		.fd = pins->ends[opcode == IORING_OP_WRITE_FIXED],
		.off = UINT64_MAX,
		.addr = (uintptr_t)addr,
		.len = (uint32_t)n_bytes,
		.buf_index = (uint16_t)slot,
	};
	++*pins->submitted;
	/* If a signal comes while it waits, the request is made already. */
	for (unsigned i = 1;
	     syscall(__NR_io_uring_enter, pins->fd, i, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0;
	     i = 0)
		if (errno != EINTR)
			abort();
	n = pins->answers[answer & pins->mask].res;
	*pins->completed = answer + 1;
	return n;
}

static bool pass(uint32_t lkey, bool is_in, void *addr, size_t n_bytes)
{
	unsigned slot = pins->slot_of[lkey % KEYS];
	ssize_t n;

	if (slot)
		n = operate(is_in ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED, slot - 1,
			    addr, n_bytes);
	else
		n = is_in ? read(pins->ends[0], addr, n_bytes)
			  : write(pins->ends[1], addr, n_bytes);
	return n == (ssize_t)n_bytes;
}

bool fake_pins_move(uint32_t to_key, char *to, uint32_t from_key, char *from, size_t n_bytes)
{
	bool is_done = true;

	if (!pins)
		memmove(to, from, n_bytes);
	for (size_t at = 0; pins && is_done && at < n_bytes; at += PIECE) {
		size_t n = n_bytes - at < PIECE ? n_bytes - at : PIECE;

		begin();
		is_done = pass(from_key, false, from + at, n) && pass(to_key, true, to + at, n);
		pthread_mutex_unlock(&pins->lock);
	}
	return is_done;
}
