/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/slabs.h"
#include "allocator/jemalloc.h"
#include "allocator/misuse.h"
#include "allocator/pages.h"
#include "allocator/seam.h"

#include <errno.h>

/* Whether jemalloc has made what it needs for the calling thread. */
static __thread bool is_known __attribute__((tls_model("initial-exec")));

static struct pin_page *record_of(const void *p)
{
	return &pin_pages.records[pin_page_of(p)];
}

static size_t offset_in_page(const void *p)
{
	return (uintptr_t)p & (PIN_UNIT - 1);
}

/* One in each 64 bytes is looked at. */
static bool is_looked_at(const void *p)
{
	return !((uintptr_t)p & 48);
}

static uint64_t bit_of(const void *p)
{
	return UINT64_C(1) << offset_in_page(p) / 64;
}

static uint32_t phase_of(unsigned class, const void *p)
{
	return (uint32_t)(offset_in_page(p) / PIN_QUANTUM %
			  (pin_class_sizes[class] / PIN_QUANTUM));
}

bool pin_slabs_begins(unsigned class, const void *p)
{
	return !((uintptr_t)p % PIN_QUANTUM) &&
	       phase_of(class, p) ==
		       atomic_load_explicit(&record_of(p)->phase, memory_order_relaxed);
}

static void note_used(const void *p)
{
	struct pin_page *page = record_of(p);

	if (atomic_load_explicit(&page->freed, memory_order_relaxed) & bit_of(p))
		atomic_fetch_and_explicit(&page->freed, ~bit_of(p), memory_order_relaxed);
}

void pin_slabs_note_used(void *const *blocks, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (is_looked_at(blocks[i]))
			note_used(blocks[i]);
}

static void note_freed(const void *p)
{
	if (PIN_UNLIKELY(atomic_fetch_or_explicit(&record_of(p)->freed, bit_of(p),
						  memory_order_relaxed) &
			 bit_of(p)))
		pin_misuse_end_later(p);
}

void pin_slabs_note_freed(unsigned class, void *const *blocks, unsigned n)
{
	for (unsigned i = 0; i < n; i += 4)
		if (PIN_UNLIKELY(!pin_slabs_begins(class, blocks[i])))
			pin_misuse_end_later(blocks[i]);
	for (unsigned i = 0; i < n; i++)
		if (is_looked_at(blocks[i]))
			note_freed(blocks[i]);
}

/* A page is known from the first block on that jemalloc hands out there. */
static void note_cut(unsigned class, const void *p)
{
	uint8_t *kind = &pin_pages.kinds[pin_page_of(p)];
	struct pin_page *page = record_of(p);

	if (PIN_LIKELY(*kind == class + 1)) {
		if (is_looked_at(p))
			note_used(p);
		return;
	}
	atomic_store_explicit(&page->phase, phase_of(class, p), memory_order_relaxed);
	atomic_store_explicit(&page->freed, 0, memory_order_relaxed);
	*kind = (uint8_t)(class + 1);
}

static unsigned cut(unsigned class, void **blocks, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++) {
		void *p = pin_je_malloc(pin_class_sizes[class]);

		if (!p)
			break;
		note_cut(class, p);
		blocks[n - 1 - i] = p;
	}
	if (PIN_UNLIKELY(i < n))
		__builtin_memmove(blocks, blocks + n - i, i * sizeof *blocks);
	return i;
}

static PIN_COLD unsigned cut_first(unsigned class, void **blocks, unsigned n)
{
	if (!pin_seam_begin_thread())
		return 0;
	n = cut(class, blocks, n);
	pin_seam_end_thread();
	is_known = n;
	return n;
}

unsigned pin_slabs_cut(unsigned class, void **blocks, unsigned n, bool limited)
{
	int saved = errno;

	pin_seam_limited = limited;
	n = PIN_LIKELY(is_known) ? cut(class, blocks, n) : cut_first(class, blocks, n);
	pin_seam_limited = false;
	errno = saved;
	return n;
}

void pin_slabs_return(void *const *blocks, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned kind = pin_pages.kinds[pin_page_of(blocks[i])];

		/* Freed twice, it was among them before, and its slab has gone since. */
		if (PIN_UNLIKELY(kind == PIN_KIND_NONE || kind >= PIN_KIND_LARGE ||
				 !pin_slabs_begins(kind - 1, blocks[i])))
			pin_misuse_end_later(blocks[i]);
		pin_je_free(blocks[i]);
	}
}

void pin_slabs_flush(void)
{
	if (is_known)
		mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
}
