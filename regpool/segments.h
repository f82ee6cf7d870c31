/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The segments (allocator/segment.h) of pools and of PINALLOC_PREALLOC. A segment is registered
 * in pieces, in each access set that is armed, so that requests in it are look-ups. A request
 * in a segment registers the whole piece that it lies in, and no more: so memory regions end
 * where pages do, however large the pages are.
 *
 * Thread-safe. Must not be called from inside malloc.
 */
#pragma once

#include "regpool/range.h"

/* The caller's memory, for as long as it is in the list. */
struct pin_segment {
	struct pin_range range;
	size_t piece; /* bytes: no request crosses a multiple of it from the start on */
	_Atomic bool is_ready; /* touched: may be registered */
	struct pin_segment *_Atomic next;
	struct pin_segment *of_pool; /* the next of the same pool (userpool.c) */
};

/* Adds a segment that is about to be touched. Nothing is registered there until then. */
void pin_segments_add(struct pin_segment *segment);

/* Removes a segment. Its memory regions stay. */
void pin_segments_remove(struct pin_segment *segment);

/* Whether a segment has part of the range. */
bool pin_segments_meet(struct pin_range range);

/* Finds the piece that has all of a range; false if there is none. */
bool pin_segments_find_piece(struct pin_range range, struct pin_range *piece);

/*
 * The lowest piece that starts above an address, of the segments that the limits allow to be
 * registered as a whole; of the others each piece would be evicted for the next.
 */
bool pin_segments_next_piece(uintptr_t above, struct pin_range *piece);

/* The piece that contains an address of the segment. */
static inline struct pin_range pin_segment_piece_at(const struct pin_segment *segment,
						    uintptr_t addr)
{
	uintptr_t start = addr - (addr - segment->range.start) % segment->piece;
	size_t left = segment->range.end - start;

	return (struct pin_range){start,
				  start + (left < segment->piece ? left : segment->piece)};
}
