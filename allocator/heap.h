/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What regpool/ and preload/ ask of jemalloc: its figures, its report, and a proof that the
 * page layer is in force. (preload/jemalloc.h has the allocation functions; what files of
 * allocator/ know of jemalloc is in allocator/jemalloc.h.)
 */
#ifndef PIN_HEAP_H
#define PIN_HEAP_H

#include "allocator/base.h"

struct pin_heap_stats {
	size_t live;   /* bytes in blocks the program holds */
	size_t mapped; /* bytes the heap has grown to, for ever */
};

/* Takes the figures. Lock-free, async-signal-safe. */
void pin_heap_stats(struct pin_heap_stats *stats);

enum pin_heap_answer {
	PIN_HEAP_OURS,	  /* a block of the reserve */
	PIN_HEAP_FOREIGN, /* one from elsewhere: another allocator stands in front of this one
			   */
	PIN_HEAP_NOTHING, /* none, of whoever */
};

/* What malloc answers. By one call: the next may find memory. Not from inside malloc. */
enum pin_heap_answer pin_heap_ask(void);

/* jemalloc's own report, through `write`. Not from inside malloc. */
void pin_heap_print(void (*write)(void *arg, const char *text), void *arg);

#endif
