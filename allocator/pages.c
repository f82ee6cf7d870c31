/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/pages.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "allocator/reserve.h"

/* The tables are committed in these steps, so that not each growth is a system call more. */
#define STEP (256 * PIN_KIB)

PIN_WRITTEN_FIRST struct pin_pages pin_pages;

/* Of pin_pages.pages, in bytes: what is committed for the span that grew last. */
static size_t pages_from, pages_to;

int pin_pages_init(void)
{
	size_t n = pin_reserve.size >> PIN_UNIT_SHIFT;

	PIN_ASSERT(pin_reserve.base && !pin_pages.base);
	pin_pages.base = pin_reserve.base;
	pin_pages.kinds = pin_reserve_addresses(PIN_ALIGN_UP(n, STEP));
	pin_pages.pages = pin_reserve_addresses(
		PIN_ALIGN_UP(n * sizeof(struct pin_page), STEP));
	return pin_pages.kinds && pin_pages.pages ? 0 : -ENOMEM;
}

static int commit(char *table, size_t from, size_t to)
{
	from = PIN_ALIGN_DOWN(from, STEP);
	to = PIN_ALIGN_UP(to, STEP);
	return to > from ? pin_os_commit(table + from, to - from) : 0;
}

/*
 * Kinds are committed from the first page on, because any address is looked up; the rest only
 * where there is memory: that of other spans begins GiBs further up. Under the lock of growth.
 */
int pin_pages_cover(const void *addr, size_t n_bytes)
{
	size_t from = (uintptr_t)addr - pin_pages.base, to = from + n_bytes;
	size_t first = (from >> PIN_UNIT_SHIFT) * sizeof(struct pin_page);
	size_t last = (to >> PIN_UNIT_SHIFT) * sizeof(struct pin_page);

	/* A process without a heap has none. */
	if (!pin_pages.pages)
		return 0;
	if (first >= pages_from && first <= pages_to)
		first = pages_to;
	else
		pages_from = pages_to = first;
	if (last > first && commit((char *)pin_pages.pages, first, last))
		return -ENOMEM;
	if (last > first)
		pages_to = PIN_ALIGN_UP(last, STEP);
	if (to <= pin_pages.limit)
		return 0;
	if (commit((char *)pin_pages.kinds, pin_pages.limit >> PIN_UNIT_SHIFT,
		   to >> PIN_UNIT_SHIFT))
		return -ENOMEM;
	atomic_store_explicit(&pin_pages.limit,
			      PIN_ALIGN_UP(to >> PIN_UNIT_SHIFT, STEP) << PIN_UNIT_SHIFT,
			      memory_order_release);
	return 0;
}

/* Whether a block in use, a segment or a slice begins with the page. */
static bool begins(uint32_t page)
{
	unsigned kind = pin_page_kind(page);

	return kind > PIN_KIND_LARGE ||
	       (kind == PIN_KIND_LARGE && pin_page_state(page) == PIN_STATE_TAKEN);
}

struct pin_range pin_block_at_or_below(uintptr_t addr, uintptr_t least)
{
	uint32_t page = pin_page_of((void *)addr), first = pin_page_of((void *)least);
	uintptr_t start;

	while (page > first && !begins(page) && pin_page_kind(page) != PIN_KIND_SMALL)
		page--;
	start = (uintptr_t)pin_page_at(page);
	return (struct pin_range){start, start + (begins(page) ? pin_page_bytes(page) : 0)};
}
