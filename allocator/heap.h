/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The heap's statistics, jemalloc's report, and a test whether malloc is the library's own,
 * for regpool/ and preload/. cache.h and family.h declare the allocation functions.
 */
#ifndef PIN_HEAP_H
#define PIN_HEAP_H

#include "allocator/base.h"

struct pin_heap_stats {
	size_t live;   /* bytes in blocks that the program has allocated */
	size_t mapped; /* bytes the heap has grown to; never decreases */
};

/* Thread-safe, lock-free, async-signal-safe. */
void pin_heap_stats(struct pin_heap_stats *stats);

enum pin_heap_answer {
	PIN_HEAP_OURS,	  /* the block is in the reserve */
	PIN_HEAP_FOREIGN, /* it is elsewhere: another allocator has replaced malloc */
	PIN_HEAP_NOTHING, /* malloc returned NULL */
};

/*
 * Calls malloc once and says where the block came from. Must not be called from inside
 * malloc.
 */
enum pin_heap_answer pin_heap_probe(void);

/*
 * Passes jemalloc's own report to `write`, in pieces of text. Must not be called from inside
 * malloc.
 */
void pin_heap_print(void (*write)(void *arg, const char *text), void *arg);

#endif
