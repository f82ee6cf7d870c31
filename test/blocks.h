/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Marks blocks in a heap that consists of spans only.
 */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "allocator/pages.h"

/* As allocator/large.c does. After pin_pages_init(). */
static inline void mark_block(const void *p, size_t n_bytes, bool in_use)
{
	uint32_t page = pin_page_of(p);

	pin_page_set_length(page, pin_pages_for(n_bytes));
	pin_page_set_kind(page, PIN_KIND_LARGE);
	pin_page_set_tag(page, 0, in_use ? PIN_STATE_TAKEN : PIN_STATE_FREE);
}

#endif
