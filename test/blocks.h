/* SPDX-License-Identifier: BSD-2-Clause */
/* A heap that consists of spans only, with blocks that are marked there; and blocks of malloc.
 */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "allocator/live.h"
#include "allocator/pages.h"
#include "allocator/lanes.h"

#include <stdlib.h>
#include <string.h>

/* As pin_span_grow(), in whole granules, by as much at least as the run map has it. */
static inline char *span_grow(struct pin_span **span, size_t n_bytes, uint32_t node)
{
	return pin_span_grow(span, PIN_ALIGN_UP(n_bytes, PIN_GRANULE),
			     pin_reserve.memory / 4096, node);
}

/* Bytes of free memory, used and bare. */
static inline size_t free_bytes(void)
{
	return (pin_lanes_hold() + pin_map.n_used + pin_map.n_bare) << PIN_UNIT_SHIFT;
}

/* As allocator/large.c does. After pin_pages_init(). */
static inline void mark_block(const void *p, size_t n_bytes, bool in_use)
{
	uint32_t page = pin_page_of(p);

	pin_page_set_length(page, pin_pages_for(n_bytes));
	pin_page_set_kind(page, PIN_KIND_LARGE);
	pin_page_set_state(page, in_use ? PIN_STATE_TAKEN : PIN_STATE_FREE);
}

static inline bool is_filled(const char *p, char value, size_t n)
{
	return *p == value && !memcmp(p, p + 1, n - 1);
}

/* Right behind each other. What is before them, in holes, is left. */
static inline void in_a_row(char **blocks, int count, size_t n)
{
	bool good = false;

	while (!good) {
		good = true;
		for (int i = 0; i < count; i++) {
			blocks[i] = malloc(n);
			good &= !i || blocks[i] == blocks[i - 1] + n;
		}
	}
}

#endif
