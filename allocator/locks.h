/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The mutexes of the allocator and of jemalloc (Makefile.am renames its calls), counted by
 * the thread that holds them. fork() is async-signal-safe, so a signal handler that has
 * interrupted malloc() may call it: then it must wait neither for a lock that this thread
 * holds nor for a thread that waits for one.
 */
#ifndef PIN_LOCKS_H
#define PIN_LOCKS_H

#include "allocator/base.h"

#include <pthread.h>
#include <stdatomic.h>

/*
 * How many locks this thread holds, is about to take or has just released. Never too low,
 * whenever a signal arrives.
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

/* As pthread_mutex_lock(), pthread_mutex_trylock() and pthread_mutex_unlock(). */
int pin_mutex_lock(pthread_mutex_t *mutex);
int pin_mutex_trylock(pthread_mutex_t *mutex);
int pin_mutex_unlock(pthread_mutex_t *mutex);

/*
 * As pthread_atfork(), for the one set of handlers that locks and unlocks all these locks.
 * They are not called for a fork() in a signal handler that has interrupted the allocator:
 * the child, which may only call async-signal-safe functions, gets the heap as it was at that
 * moment, and the handler may return in both processes.
 */
int pin_locks_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

/*
 * Installs the handlers of fork(), once. Those installed first prepare last, so it is called
 * before the program can install any: a program's may allocate and free.
 */
void pin_locks_init(void);

/*
 * The allocator's own locks: what locks them all, after jemalloc's, which are taken first also
 * where both are, and what unlocks them, in both processes.
 */
void pin_locks_set_own(void (*before)(void), void (*after)(void));

#endif
