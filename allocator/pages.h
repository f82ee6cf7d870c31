/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the heap knows of each page: a byte, the page's kind, says what the page is used for,
 * and is all that free() reads of small blocks; struct pin_page has the rest. Both are in
 * tables beside the heap, so that the heap never writes to free memory.
 *
 * A page here is 4 KiB, whatever the kernel's pages are.
 */
#pragma once

#include "allocator/base.h"
#include "allocator/reserve.h"

#include <stdatomic.h>

#define PIN_UNIT_SHIFT 12
#define PIN_UNIT       ((size_t)1 << PIN_UNIT_SHIFT)

/*
 * Values of that byte. It is set for the first page of a large block, and stays when that is
 * freed, for the first page of a segment or a slice, and for all pages of small blocks; others
 * have 0.
 */
enum pin_kind {
	PIN_KIND_NONE,
	PIN_KIND_SMALL, /* jemalloc's: all its pages */
	PIN_KIND_LARGE, /* a block, in use if its state says so */
	PIN_KIND_SLICE, /* no block: of a segment (regpool/userpool.c), or one that is not cut
			   yet */
	PIN_KIND_UNCUT, /* memory of a segment that is in no slice: its first and last page */
};

/* Of pages that a run map hands out or has. What a lane holds has none. */
enum pin_run_state {
	PIN_STATE_NONE,
	PIN_STATE_TAKEN, /* the first page of what was taken */
	PIN_STATE_FREE,	 /* the first or last page of a free run: memory that has been used */
	PIN_STATE_BARE,	 /* the same: addresses that nobody has touched */
};

/*
 * What it holds depends on the state of the page. The state is here, and not in the byte,
 * because 64 bytes share a line: threads that free each other's neighbours would write to it.
 */
struct pin_page {
	uint32_t length;       /* pages, of a large block, a segment or a free run: there at its
				  last page, too */
	_Atomic uint16_t site; /* of a large block, if blocks are sampled: sample.c */
	_Atomic uint16_t state;
	union {
		uint32_t children[2]; /* of a free run: neighbours in a list (fit.c) */
		uint64_t asked;	      /* of a large block, the bytes requested */
	};
};

/* Internal; written when the heap grows, read by every thread without a lock. */
extern struct pin_pages {
	uintptr_t base;	      /* pin_reserve.base */
	_Atomic size_t limit; /* bytes from there that the tables cover */
	uint8_t *kinds;
	struct pin_page *pages;
} pin_pages PIN_HIDDEN;

/* Reserves addresses for the tables, after pin_reserve_init(). Returns 0 or -ENOMEM. */
int pin_pages_init(void);

/* Makes the tables cover the heap up to the page at `end`. Returns 0 or -ENOMEM. */
int pin_pages_cover(uintptr_t end);

static inline struct pin_page *pin_page(uint32_t number)
{
	return &pin_pages.pages[number];
}

/* The number of the page that contains an address of the heap. */
static inline uint32_t pin_page_of(const void *p)
{
	return (uint32_t)(((uintptr_t)p - pin_pages.base) >> PIN_UNIT_SHIFT);
}

static inline void *pin_page_at(uint32_t number)
{
	return (void *)(pin_pages.base + ((uintptr_t)number << PIN_UNIT_SHIFT));
}

static inline unsigned pin_page_kind(uint32_t page)
{
	return __atomic_load_n(&pin_pages.kinds[page], __ATOMIC_RELAXED);
}

/* Most often it is that already; others may read the line. */
static inline void pin_page_set_kind(uint32_t page, enum pin_kind kind)
{
	if (pin_page_kind(page) != kind)
		__atomic_store_n(&pin_pages.kinds[page], (uint8_t)kind, __ATOMIC_RELAXED);
}

/* What registers memory ahead reads lengths without a lock. */
static inline void pin_page_set_length(uint32_t page, uint32_t n_pages)
{
	__atomic_store_n(&pin_page(page)->length, n_pages, __ATOMIC_RELAXED);
}

static inline size_t pin_page_bytes(uint32_t page)
{
	return (size_t)__atomic_load_n(&pin_page(page)->length, __ATOMIC_RELAXED)
	       << PIN_UNIT_SHIFT;
}

/* Threads that free the neighbours read it. */
static inline enum pin_run_state pin_page_state(uint32_t page)
{
	return (enum pin_run_state)atomic_load_explicit(&pin_page(page)->state,
							memory_order_acquire);
}

static inline void pin_page_set_state(uint32_t page, enum pin_run_state state)
{
	atomic_store_explicit(&pin_page(page)->state, (uint16_t)state, memory_order_release);
}

/* The kind of the page that contains p, which may be any address. */
static inline unsigned pin_kind_of(const void *p)
{
	size_t offset = (uintptr_t)p - pin_pages.base;

	if (PIN_UNLIKELY(offset >=
			 atomic_load_explicit(&pin_pages.limit, memory_order_relaxed)))
		return PIN_KIND_NONE;
	return pin_page_kind((uint32_t)(offset >> PIN_UNIT_SHIFT));
}

/*
 * The pages that a block of n_bytes has, at least one; 0 if there can be no such block.
 * Whatever takes a size or an alignment from a program, or from jemalloc, calls this function.
 */
static inline uint32_t pin_pages_for(size_t n_bytes)
{
	if (PIN_UNLIKELY(n_bytes > pin_reserve.size - PIN_UNIT))
		return 0;
	return (uint32_t)((n_bytes + !n_bytes + PIN_UNIT - 1) >> PIN_UNIT_SHIFT);
}

/* A range of addresses, such as those of a block. */
struct pin_range {
	uintptr_t start, end;
};

/*
 * The last block, segment or slice of one in use that begins in [least, addr], of one span; if
 * there is none, or there are small blocks above it, an empty one where the search ended. Other
 * threads may be freeing it meanwhile. Takes a step for each page. Lock-free.
 */
struct pin_range pin_block_at_or_below(uintptr_t addr, uintptr_t least);
