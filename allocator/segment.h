/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Segments: memory of the heap in one piece that is no block, for pools and preallocation. It
 * comes from a run map, or the system's pool of huge pages, and goes to a run map, never to the
 * kernel.
 *
 * Thread-safe. Must not be called from inside malloc.
 */
#pragma once

#include "allocator/base.h"

#define PIN_NODE_HERE UINT32_MAX

struct pin_segment_need {
	size_t n_bytes;	  /* a multiple of PIN_GRANULE and of the page size */
	size_t page_size; /* PIN_GRANULE or PIN_GIB; 0: whatever the heap has */
	/*
	 * The memory node that it is to be on, once it is touched. PIN_NODE_HERE: where malloc
	 * takes memory from for this thread.
	 */
	uint32_t node;
};

/*
 * Returns a segment, at a multiple of PIN_GRANULE and of the page size, or NULL if there is no
 * memory. If there are not enough pages of 1 GiB, it has what the heap has, and
 * need->page_size becomes PIN_GRANULE; the caller says so. need->node becomes a number. What
 * the segment holds is not defined.
 */
void *pin_segment_take(struct pin_segment_need *need);

/*
 * Gives a segment back, all of it. Its owner has used what is known of its pages, if at all,
 * for kinds that end here.
 */
void pin_segment_give(void *segment, size_t n_bytes);
