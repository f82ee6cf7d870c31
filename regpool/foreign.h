/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations that libibverbs makes, of heap memory or other memory, and what keeps
 * registration caches from using them when their pages have been replaced. There are three
 * ways:
 *
 * The main thread's stack never goes, and is left alone.
 *
 * Else the caches are told at once that the range has gone, so that they forget it: they use
 * the registration for the message that it was made for, and not again. That takes no system
 * call, and is always right.
 *
 * Memory that is registered again is watched (watch.h), and stays in the caches until any
 * memory that is watched is replaced.
 *
 * Thread-safe. Must not be called from inside malloc or a signal handler.
 */
#ifndef PIN_FOREIGN_H
#define PIN_FOREIGN_H

#include "regpool/watch.h"

/* A registration that is about to be made. */
struct pin_foreign {
	struct pin_pages range;
	const void *caller;
	enum { PIN_LEFT_ALONE, PIN_FORGOTTEN, PIN_WATCHED } how;
	unsigned n;	   /* PIN_WATCH_HEAP or PIN_WATCH_FOREIGN */
	uint32_t messages; /* of these, before it is made */
};

/* Call before [addr, addr + length) is registered, with a return address of the caller. */
void pin_foreign_begin(struct pin_foreign *it, const void *addr, size_t length,
		       const void *caller);

/* Call after it was. Preserves errno. */
void pin_foreign_end(struct pin_foreign *it);

/* A heap registration that was served while heap pages were replaced is forgotten. */
void pin_foreign_forget_heap(const void *addr, size_t length, const void *caller);

#endif
