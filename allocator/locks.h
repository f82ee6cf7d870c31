/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The allocator's mutexes, jemalloc's among them (Makefile.am renames its calls), each counted
 * by the thread that has it. A signal handler may have interrupted malloc() there, and fork()
 * is async-signal-safe: it must neither wait for this thread nor for one that waits for it.
 */
#ifndef PIN_LOCKS_H
#define PIN_LOCKS_H

#include "allocator/base.h"

#include <pthread.h>
#include <stdatomic.h>

/*
 * How many locks this thread has, or is about to take or has just given back: never too few,
 * wherever a signal comes.
 */
extern __thread unsigned pin_locks_held __attribute__((tls_model("initial-exec")));

static inline void pin_locks_count(void)
{
	pin_locks_held++;
	atomic_signal_fence(memory_order_seq_cst);
}

static inline void pin_locks_uncount(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	pin_locks_held--;
}

/* As pthread_mutex_lock() and its kin. */
int pin_mutex_lock(pthread_mutex_t *mutex);
int pin_mutex_trylock(pthread_mutex_t *mutex);
int pin_mutex_unlock(pthread_mutex_t *mutex);

/*
 * As pthread_atfork(), for the one set of handlers that takes and gives back all these locks.
 * They are not called for a fork() in a signal handler that has interrupted the allocator: the
 * child, which may only call what is async-signal-safe, finds the heap as it was at that
 * moment, and the handler may return in both.
 */
int pin_locks_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

#endif
