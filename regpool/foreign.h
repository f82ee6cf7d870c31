/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations that libibverbs makes, of heap memory or foreign memory, and what keeps
 * registration caches from using them after the program has replaced their pages. A
 * registration is one of these:
 *
 * Left alone: the main thread's stack is never unmapped.
 *
 * Invalidated: the library tells the caches at once that the range has gone. They use the
 * registration for the message that it was made for, and not again. This takes no system call,
 * and the data is always right.
 *
 * Watched (watch.h): the range is large, or was registered before. The registration stays in
 * the caches until the program replaces any memory that is watched.
 *
 * Thread-safe. Must not be called from inside malloc or a signal handler.
 */
#pragma once

#include "regpool/watch.h"

/* A registration that is about to be made. */
struct pin_foreign {
	struct pin_range range;
	const void *caller;
	enum { PIN_LEFT_ALONE, PIN_INVALIDATED, PIN_WATCHED } how;
	enum pin_watch_kind kind;
	uint32_t messages; /* of the kernel, of this kind, before it is made */
};

/* Call before [addr, addr + length) is registered, with a return address of the caller. */
void pin_foreign_begin(struct pin_foreign *it, const void *addr, size_t length,
		       const void *caller);

/* Call after it was. Preserves errno. */
void pin_foreign_end(struct pin_foreign *it);

/* The pages were replaced, or are just being discarded: nothing watches them any more. */
void pin_foreign_settle(struct pin_range pages, bool is_discarded);

/* Invalidates a registration, as of the heap one that was served while pages were replaced. */
void pin_foreign_invalidate(struct pin_range range, const void *caller);
