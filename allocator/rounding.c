/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/rounding.h"
#include "allocator/live.h"
#include "allocator/reserve.h"
#include "allocator/table.h"

/* Bytes that one step of a table element stands for; one request ends 256 GiB short at most. */
#define UNIT 64

/* uint32_t by page of the reserve, at the first page of a block; touched only there. */
static struct pin_table beyond;

size_t pin_rounding_large = 32 * PIN_KIB; /* the most in a thread cache, by default */

void pin_rounding_init(size_t n_cached)
{
	/* A size class is up to a quarter more. */
	if (n_cached > pin_rounding_large)
		pin_rounding_large = n_cached + n_cached / 4;
	pin_table_init(&beyond, sizeof(uint32_t), pin_reserve.size / PIN_PAGE);
}

static size_t page_of(const void *block)
{
	return ((uintptr_t)block - pin_reserve.base) / PIN_PAGE;
}

/*
 * Returns what was there before. Not written when nothing changes: most of the table's
 * pages are never touched.
 */
static size_t set(size_t page, size_t n_bytes)
{
	uint32_t *units = pin_table_at(&beyond, uint32_t, page), before = *units;
	size_t after = n_bytes / UNIT < UINT32_MAX ? n_bytes / UNIT : UINT32_MAX;

	if (before != after)
		*units = (uint32_t)after;
	return (size_t)before * UNIT;
}

void pin_rounding_note(const void *block, size_t n_bytes, size_t n_usable)
{
	size_t n = PIN_ALIGN_DOWN(n_usable - n_bytes, UNIT), before;

	if (!pin_reserve_contains(block))
		return;
	/* What the table has no room for yet is 0 already: most programs need none. */
	if (page_of(block) >= beyond.committed &&
	    (!n || pin_table_ensure(&beyond, page_of(block) + 1)))
		return;
	before = set(page_of(block), n);
	pin_live_correct((int64_t)before - (int64_t)n);
}

size_t pin_rounding_forget(const void *block)
{
	size_t before;

	if (!pin_reserve_contains(block) || page_of(block) >= beyond.committed)
		return 0;
	before = set(page_of(block), 0);
	pin_live_correct((int64_t)before);
	return before;
}
