/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/start.h"
#include "allocator/hooks.h"
#include "allocator/jemalloc.h"
#include "allocator/runs.h"
#include "allocator/sites.h"

#include <pthread.h>
#include <signal.h>

/*
 * glibc's lock of its list of streams. A thread that has locked a stream may allocate
 * (getline), a thread that has locked the list waits for streams (fflush(NULL)), and fork()
 * locks the list after its handlers have run: too late, if these have locked an allocator
 * other than glibc's own. So the list is locked first here. The lock is recursive, and
 * re-initialised in the child.
 */
void _IO_list_lock(void) __attribute__((weak));
void _IO_list_unlock(void) __attribute__((weak));
void _IO_list_resetlock(void) __attribute__((weak));
extern char __libc_single_threaded __attribute__((weak));

/* Of the thread that forks, under pin_loader_lock: no other forks at the time. */
static bool has_list_lock;
static sigset_t mask;

static void nothing(void)
{
}

PIN_WRITTEN_FIRST static struct {
	void (*prepare)(void), (*parent)(void), (*child)(void);
} handlers = {nothing, nothing, nothing};

static void unlock_own(void)
{
	pin_mutex_unlock(&pin_loader_lock);
	pin_mutex_unlock(&pin_map.lock);
	pin_mutex_unlock(&pin_sites_lock);
	pin_mutex_unlock(&pin_leaf_lock);
}

/* A signal waits until the locks are free: its handler may fork, too. */
static void prepare(void)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	pin_mutex_lock(&pin_loader_lock);
	mask = before;
	has_list_lock = _IO_list_lock && !(&__libc_single_threaded && __libc_single_threaded);
	if (has_list_lock)
		_IO_list_lock();
	pin_mutex_lock(&pin_begin_lock);
	/* The thread that has the leaf lock may wait for one of jemalloc's: let go of these,
	 * too. */
	for (handlers.prepare(); !pin_mutex_trylock(&pin_leaf_lock); handlers.prepare()) {
		handlers.parent();
		pin_mutex_lock(&pin_leaf_lock);
		pin_mutex_unlock(&pin_leaf_lock);
	}
	pin_mutex_lock(&pin_sites_lock);
	pin_mutex_lock(&pin_map.lock);
}

static void in_parent(void)
{
	sigset_t before = mask;

	if (has_list_lock)
		_IO_list_unlock();
	unlock_own();
	handlers.parent();
	pin_mutex_unlock(&pin_begin_lock);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* jemalloc re-initialises its mutexes instead of unlocking them. */
static void in_child(void)
{
	unlock_own();
	handlers.child();
	pin_mutex_unlock(&pin_begin_lock);
	pin_hook(in_child);
	if (has_list_lock)
		_IO_list_resetlock();
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

void pin_atfork_init(void)
{
	PIN_WRITTEN_FIRST static bool done;

	if (done)
		return;
	done = true;
	pthread_atfork(prepare, in_parent, in_child);
}

int pin_atfork_jemalloc(void (*before)(void), void (*parent)(void), void (*child)(void))
{
	handlers.prepare = before;
	handlers.parent = parent;
	handlers.child = child;
	pin_atfork_init();
	return 0;
}
