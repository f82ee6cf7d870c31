/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The list of segments (allocator/segment.h) that are registered as such: those of pools, and
 * that of PINALLOC_PREALLOC. A request in one makes a memory region over all of the piece that
 * it is in, and no more: so they end where pages do, however large those are.
 *
 * Thread-safe.
 */
#ifndef PIN_SEGMENTS_H
#define PIN_SEGMENTS_H

#include "regpool/granule.h"

/* The caller's memory, for as long as it is in the list. */
struct pin_segments_entry {
	struct pin_range range;
	/*
	 * Bytes. No request goes over a multiple of it, counted from the range's start, as an
	 * adapter may not take more at a time.
	 */
	size_t piece;
	bool is_made; /* else it is still being touched, and left alone */
	struct pin_segments_entry *next;
};

/* Puts one in the list that is about to be touched: until then nobody registers ahead there. */
void pin_segments_add(struct pin_segments_entry *entry);

/* Call when it is touched. */
void pin_segments_note_made(struct pin_segments_entry *entry);

/* Takes one off the list. Its memory regions stay, as those of other memory do. */
void pin_segments_remove(struct pin_segments_entry *entry);

/* Whether part of a range is still being touched. */
bool pin_segments_is_being_made(struct pin_range range);

/* Finds the piece that has all of a range; false if there is none. */
bool pin_segments_find_piece(struct pin_range range, struct pin_range *piece);

/* A copy of the one with the lowest address above another that is made; false for none. */
bool pin_segments_next(uintptr_t above, struct pin_segments_entry *found);

#endif
