/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The heap's start, its statistics, and a block in reserve. blocks.h and family.h declare the
 * allocation functions.
 */
#ifndef PIN_HEAP_H
#define PIN_HEAP_H

#include "allocator/base.h"

struct pin_heap_stats {
	size_t live;   /* bytes in use (live.h) */
	size_t large;  /* of that, in large blocks */
	size_t mapped; /* bytes the heap has grown to; never decreases */
};

/* Thread-safe, lock-free, async-signal-safe. */
void pin_heap_stats(struct pin_heap_stats *stats);

/*
 * Starts the heap, with the first call of any function that allocates. False if there are no
 * addresses.
 */
bool pin_start_heap(void);

/*
 * Frees a block that the heap keeps from its start on, for what must allocate when memory has
 * run out. Nobody touches it, so it costs only addresses.
 */
void pin_heap_give_spare(void);

#endif
