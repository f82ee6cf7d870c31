/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/pages.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "allocator/reserve.h"

/* The tables are committed for so much of the heap, so that not each growth is a system call.
 */
#define STEP (128 * PIN_MIB)

PIN_WRITTEN_FIRST struct pin_pages pin_pages;

int pin_pages_init(void)
{
	size_t n = PIN_ALIGN_UP(pin_reserve.size, STEP) >> PIN_UNIT_SHIFT;

	PIN_ASSERT(pin_reserve.base && !pin_pages.base);
	pin_pages.base = pin_reserve.base;
	pin_pages.kinds = pin_reserve_addresses(n);
	pin_pages.pages = pin_reserve_addresses(n * sizeof(struct pin_page));
	return pin_pages.kinds && pin_pages.pages ? 0 : -ENOMEM;
}

/*
 * From the first page on, because any address is looked up, and with the page behind, which no
 * run has. Under the lock of growth.
 */
int pin_pages_cover(uintptr_t end)
{
	size_t to = PIN_ALIGN_UP(end + 1 - pin_reserve.base, STEP), from = pin_pages.limit;
	size_t first = from >> PIN_UNIT_SHIFT, n = (to - from) >> PIN_UNIT_SHIFT;

	/* A process without a heap has none. */
	if (!pin_pages.pages || to <= from)
		return 0;
	if (pin_os_commit(pin_pages.pages + first, n * sizeof(struct pin_page)) ||
	    pin_os_commit(pin_pages.kinds + first, n))
		return -ENOMEM;
	atomic_store_explicit(&pin_pages.limit, to, memory_order_release);
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
