/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a lower layer calls in a higher one: one table, which the library's constructor fills
 * (preload/init.c). Until then, and in unit tests, a hook is NULL, and nothing is called.
 *
 * No hook may allocate, take a lock under which something allocates, or wait for a thread that
 * may be allocating, unless it says so here: most are called inside malloc.
 */
#pragma once

#include "allocator/base.h"

#include <stdatomic.h>

struct pin_range;

extern PIN_HIDDEN struct pin_hooks {
	/*
	 * sites.c, with no lock of ours or of jemalloc's: stores at most n frames, equal ones
	 * for equal places in the code, and returns how many; -1 if stacks are not walked.
	 */
	int (*walk_stack)(void **frames, int n);
	/*
	 * live.c, with no lock: the heap has grown, or the peak has reached pin_live_due, then
	 * it is due; or pin_timeline_stepped. May open a file and write to it.
	 */
	void (*note_memory)(bool is_due);
	/* timeline.c reads there how many bytes are pinned. */
	const _Atomic size_t *pinned;
	/*
	 * runs.c, under the lock of a run map: memory was taken that nobody has touched and
	 * that reaches another granule. Takes no lock.
	 */
	void (*note_touched)(void);
	/* atfork.c, in a child, after the heap's locks were given back. */
	void (*in_child)(void);

	/* The others are regpool's, and called outside of malloc: they may allocate. */

	/*
	 * register.c and mr.c, also under the lock of a domain: the heap's registrations have
	 * changed, or a request went to libibverbs. May open a file and write to it.
	 */
	void (*note_registered)(void);
	/* domain.c, with no lock: an access set was armed. May register. */
	void (*note_armed)(void);
	/*
	 * watch.c, in the notifying thread, with no lock: [start, start + length) has gone. May
	 * take locks of caches, and deregister.
	 */
	void (*notify_caches)(uintptr_t start, size_t length);
	/*
	 * watch.c, in the reader, while look-ups wait: the program has replaced pages, of any
	 * mapping, or is just discarding them. Must not wait for other threads, nor log. The
	 * first is for the heap: it withdraws the keys there, and returns how many bytes of the
	 * heap have lost them; also in another thread, where nobody has watched so far whether
	 * they are replaced. The second is for other memory.
	 */
	size_t (*withdraw_keys)(struct pin_range pages, bool are_replaced);
	void (*settle_foreign)(struct pin_range pages, bool is_discarded);
} pin_hooks;

/* Calls a hook that returns nothing, if it is set. */
#define pin_hook(name, ...)                          \
	do {                                         \
		if (pin_hooks.name)                  \
			pin_hooks.name(__VA_ARGS__); \
	} while (0)
