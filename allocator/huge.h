/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which pages of the heap are huge, as PINALLOC_HUGEPAGE says. By default (dense) the kernel is
 * asked for huge pages where memory proves to be used whole, granule by granule: for requests
 * below a granule, and for blocks that grow in place. One touched page makes all of a huge page
 * resident, so what was asked for proves nothing. Therefore some granules are left as they are,
 * and only these are looked at.
 *
 * Memory that a program leaves untouched may become resident so. It is never more than a share
 * of what looks have shown to be touched, less what was lost before: the credit. A granule is
 * asked for only while everything that no look has confirmed could be lost.
 */
#pragma once

#include "allocator/base.h"

/* What is known of a run map's memory of one kind. Under the map's lock. */
struct pin_huge {
	uint32_t probe; /* the first page of the granule to look at next; 0 if there is none */
	uint32_t n_asked; /* granules asked for since the last look */
	uint32_t n_left;  /* and those left as they are */
	int64_t credit;	  /* pages */
};

/*
 * Pages [page, end), which nobody has touched, are handed out, for a slab of small blocks or
 * for something else. Of the map's memory n_touched pages were handed out so far. May ask for
 * huge pages where a granule begins in [page, end), which takes some microseconds a granule.
 */
void pin_huge_enter(struct pin_huge *huge, bool is_slab, uint32_t page, uint32_t end,
		    size_t n_touched);

/*
 * Makes [addr, addr + n_bytes) of the reserve, both multiples of PIN_GRANULE and not used
 * yet, readable and writable. Returns 0; -ENOMEM if there is no memory; -EEXIST if another
 * mapping of the process is there, so that the heap must never use these addresses.
 * Thread-safe.
 */
int pin_huge_commit(char *addr, size_t n_bytes);
