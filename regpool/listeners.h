/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Notifies the registration caches of UCX, Open MPI and libfabric when memory goes away, as far
 * as the process has loaded them, through functions that they export:
 *
 *   ucm_vm_munmap(addr, length)                              UCX, since 1.2
 *   opal_mem_hooks_release_hook(addr, length, from_alloc)    Open MPI: all its caches
 *   an imported memory monitor (fi_ext.h)                    libfabric, since 1.14
 *
 * The library links to none of them. Those that were found are never unloaded.
 */
#pragma once

#include "regpool/watch.h"

/*
 * Looks for caches that were loaded since the last call, which are notified from then on.
 * Called before each registration: no cache can hold one from before. Returns whether there are
 * any; not with PINALLOC_WATCH=off, nor in a program that PINALLOC_PROGRAMS excludes. True
 * while another thread looks for them. Takes no lock if nothing was loaded (files.h), or else
 * the loader's. Thread-safe. Must not be called from inside malloc.
 */
bool pin_listeners_find(void);

/*
 * Whether the caller, given a return address in it, inserts a registration into its cache only
 * after it was made, so that it is too early to invalidate it: Open MPI's own caches do that,
 * and a cache that another thread is just finding may. UCX drops what was invalidated before
 * it uses it again, and libfabric asks whether it may cache a registration.
 */
bool pin_listeners_insert_later(const void *caller);

/*
 * Whether the caller keeps registrations in a table by key, as libfabric does, and refuses a
 * second one with the same.
 */
bool pin_listeners_needs_unique_keys(const void *caller);

/* Notifies all that were found that a range has gone: they take locks, and deregister. */
void pin_listeners_notify(uintptr_t start, size_t length);

/*
 * Tells UCX to invalidate a registration, from inside the call that makes it, given a return
 * address in it. If UCX makes it, this thread holds UCX's lock, so UCX only notes the range. In
 * a forked child nobody else tells it: another thread of the parent may have held the lock.
 */
void pin_listeners_invalidate(uintptr_t start, size_t length, const void *caller);

/* In a child, from a handler of fork(). */
void pin_listeners_begin_child(void);

/*
 * What this thread has just registered of memory that is not heap, if it may be cached while
 * there are no more messages than that; an empty range if not. libfabric asks about it next.
 */
void pin_listeners_note_kept(struct pin_range range, uint32_t messages);
