/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The pools of pinalloc.h: segments that are touched and registered when they are made, and cut
 * into slices of whole pages. And PINALLOC_PREALLOC, a segment that malloc gets.
 *
 * Thread-safe, but for destroying a pool that others use. Must not be called from inside malloc
 * or a signal handler. Return 0 or a negative error number.
 */
#pragma once

#include "allocator/segment.h"

typedef int pin_on_segment(void *start, size_t length, int is_added, void *arg);

struct pin_userpool_options {
	struct pin_segment_need need; /* of its first segment */
	unsigned n_threads;	      /* to touch it; 0: a number that is fast */
	bool grows;
	pin_on_segment *on_segment; /* or NULL; called with no lock held */
	void *arg;
};

struct pin_userpool;

int pin_userpool_create(const struct pin_userpool_options *options,
			struct pin_userpool **created);

/* Sets *slice. The alignment is a power of two, or 0. */
int pin_userpool_alloc(struct pin_userpool *pool, size_t n_bytes, size_t alignment,
		       void **slice);

int pin_userpool_free(struct pin_userpool *pool, void *slice);

/* -EBUSY, and nothing is done, if there are slices in use. */
int pin_userpool_destroy(struct pin_userpool *pool);

/*
 * Part of the heap, PINALLOC_PREALLOC, becomes resident and registered before the program first
 * communicates. Call when an access set was armed: the first call makes the memory. Logs if
 * there is no room.
 */
void pin_userpool_preallocate(void);
