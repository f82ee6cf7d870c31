/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the heap knows of each page: a byte, the page's kind, says what the page is used for,
 * and is all that free() reads; a record has the rest. Both are in tables beside the heap, so
 * that the heap never writes to free memory.
 *
 * A page here is 4 KiB, whatever the kernel's pages are.
 */
#ifndef PIN_PAGES_H
#define PIN_PAGES_H

#include "allocator/base.h"
#include "allocator/mutex.h"

#include <stdatomic.h>

#define PIN_UNIT_SHIFT 12
#define PIN_UNIT       ((size_t)1 << PIN_UNIT_SHIFT)

/*
 * Values of that byte. It is set for the first page of a large block or a segment, and for the
 * first and the last one of a free run, if these are two the latter as PIN_KIND_LAST; other
 * pages have 0.
 */
enum pin_kind {
	PIN_KIND_NONE,
	PIN_KIND_SMALL,	      /* jemalloc's: all its pages */
	PIN_KIND_LARGE = 200, /* a block in use */
	PIN_KIND_SEGMENT,     /* no block: segment.h; or a slice of one: regpool/userpool.c */
	PIN_KIND_UNCUT = 202, /* memory of a segment that is in no slice */
	PIN_KIND_FREE = 204,  /* memory that has been used */
	PIN_KIND_BARE = 206,  /* addresses that nobody has touched */
};
#define PIN_KIND_LAST 1 /* is added */

/* What a record holds depends on the kind of its page. Pages of small blocks have none. */
struct pin_page {
	uint32_t length;       /* pages, of a large block, a segment or free memory: there at
				  its last page, too */
	_Atomic uint32_t site; /* of a large block, if blocks are sampled: sample.c */
	union {
		uint32_t children[2]; /* of a free run: fit.c */
		struct {
			uint64_t asked : 63; /* of a large block, the bytes requested */
			uint64_t is_new : 1; /* it may have pages that nobody has touched */
		};
	};
};

/* Internal; written when the heap grows, read by every thread without a lock. */
extern struct pin_pages {
	uintptr_t base;	      /* pin_reserve.base */
	_Atomic size_t limit; /* bytes from there that the tables cover */
	uint8_t *kinds;
	struct pin_page *records;
} pin_pages PIN_HIDDEN;

/* Reserves addresses for the tables, after pin_reserve_init(). Returns 0 or -ENOMEM. */
int pin_pages_init(void);

/* Makes the tables cover [addr, addr + n_bytes). Returns 0 or -ENOMEM. */
int pin_pages_cover(const void *addr, size_t n_bytes);

/* Of all that the run map and large blocks write there. */
extern struct pin_mutex pin_runs_lock PIN_HIDDEN;

static inline void pin_runs_take_lock(void)
{
	pin_mutex_lock(&pin_runs_lock);
}

static inline void pin_runs_release_lock(void)
{
	pin_mutex_unlock(&pin_runs_lock);
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

/* The kind of the page that contains p, which may be any address. */
static inline unsigned pin_kind_of(const void *p)
{
	size_t offset = (uintptr_t)p - pin_pages.base;

	if (PIN_UNLIKELY(offset >=
			 atomic_load_explicit(&pin_pages.limit, memory_order_relaxed)))
		return PIN_KIND_NONE;
	return pin_pages.kinds[offset >> PIN_UNIT_SHIFT];
}

static inline uint32_t pin_units(size_t n_bytes)
{
	return (uint32_t)((n_bytes + PIN_UNIT - 1) >> PIN_UNIT_SHIFT);
}

#endif
