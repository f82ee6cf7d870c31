/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/locks.h"

__thread unsigned pin_locks_held;

/* This thread's forks without handlers: one in a handler can itself be interrupted by another.
 */
static __thread unsigned n_bare __attribute__((tls_model("initial-exec")));

/*
 * glibc's lock of the list of streams. A stream's owner allocates (getline), a thread that has
 * the list waits for a stream (fflush(NULL)), and fork() takes the list after its handlers: for
 * locks of an allocator that is not glibc's own, that would be too late. It is recursive, and
 * the child's is made anew.
 */
void _IO_list_lock(void) __attribute__((weak));
void _IO_list_unlock(void) __attribute__((weak));
void _IO_list_resetlock(void) __attribute__((weak));
extern char __libc_single_threaded __attribute__((weak));
static __thread unsigned n_lists __attribute__((tls_model("initial-exec")));

static struct {
	void (*prepare)(void), (*parent)(void), (*child)(void);
} handlers;

int pin_mutex_lock(pthread_mutex_t *mutex)
{
	pin_locks_count();
	return pthread_mutex_lock(mutex);
}

int pin_mutex_trylock(pthread_mutex_t *mutex)
{
	int error;

	pin_locks_count();
	error = pthread_mutex_trylock(mutex);
	if (PIN_UNLIKELY(error))
		pin_locks_uncount();
	return error;
}

int pin_mutex_unlock(pthread_mutex_t *mutex)
{
	int error = pthread_mutex_unlock(mutex);

	pin_locks_uncount();
	return error;
}

static void lock_list(void)
{
	if ((&__libc_single_threaded && __libc_single_threaded) || !_IO_list_lock)
		return;
	_IO_list_lock();
	n_lists++;
}

static void prepare(void)
{
	if (PIN_UNLIKELY(pin_locks_held)) {
		n_bare++;
		return;
	}
	lock_list();
	handlers.prepare();
}

static void in_parent(void)
{
	if (PIN_UNLIKELY(n_bare)) {
		n_bare--;
		return;
	}
	handlers.parent();
	if (n_lists) {
		n_lists--;
		_IO_list_unlock();
	}
}

/* jemalloc makes its mutexes anew instead of unlocking them. */
static void in_child(void)
{
	if (PIN_UNLIKELY(n_bare)) {
		n_bare--;
		return;
	}
	handlers.child();
	pin_locks_held = 0;
	if (n_lists) {
		n_lists = 0;
		_IO_list_resetlock();
	}
}

int pin_locks_atfork(void (*before)(void), void (*parent)(void), void (*child)(void))
{
	handlers.prepare = before;
	handlers.parent = parent;
	handlers.child = child;
	return pthread_atfork(prepare, in_parent, in_child);
}
