/* SPDX-License-Identifier: BSD-2-Clause */
/* The library's own threads, and what may interrupt the program's. */
#pragma once

#include "allocator/mutex.h"

#include <pthread.h>
#include <signal.h>

/*
 * Starts a detached thread that does not end, is shielded, and is no real-time thread, unless
 * it runs. The name has at most 15 characters. Returns 0 or an errno value.
 */
int pin_thread_start(bool *runs, void *(*run)(void *), void *arg, const char *name);

/*
 * Who has a lock that the watch's reader takes, or an entry BUSY, must not be interrupted: a
 * handler of a signal may replace pages, and so wait for the reader (watch.h), or fork, and so
 * wait for the entry; and libibverbs may have cancellation points. So signals and cancellation
 * are blocked in a thread from before the first of these is taken to after the last is given
 * back. All signals are, but those that what a thread does itself may cause.
 */
struct pin_shield {
	sigset_t mask;
	int cancel_state;
};
struct pin_shield pin_shield_begin(void);
void pin_shield_end(const struct pin_shield *shield);

/* A declaration: locks a mutex to the end of the block. */
#define PIN_LOCKED(mutex)              \
	struct pin_mutex *const locked \
		__attribute__((cleanup(pin_unlock), unused)) = (pin_mutex_lock(mutex), mutex)
void pin_unlock(struct pin_mutex *const *mutex);

/* That the calling thread holds a rwlock for writing. As glibc knows. */
#define pin_assert_writing(rwlock) PIN_ASSERT((rwlock)->__data.__cur_writer == gettid())

/* A declaration: shields the thread to the end of the block. Two system calls. */
#define PIN_SHIELDED                   \
	const struct pin_shield shield \
		__attribute__((cleanup(pin_shield_end), unused)) = pin_shield_begin()

/*
 * Makes [start, start + n_bytes) resident by n_threads threads, which end before it returns: 0
 * for one for each processor that this thread may run on, up to eight. On a memory node, if
 * there are several and the thread has no policy of its own. Contents stay. Returns 0, or
 * -ENOMEM if the kernel has no memory for it. Must not be called from inside malloc.
 */
int pin_touch(void *start, size_t n_bytes, uint32_t node, unsigned n_threads);
