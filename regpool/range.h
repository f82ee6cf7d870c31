/* SPDX-License-Identifier: BSD-2-Clause */
/* Ranges of addresses: what they have, meet, and round to. */
#pragma once

#include "allocator/pages.h"

/* They are of whole pages, and of the heap within one span. */
static inline size_t pin_range_length(struct pin_range range)
{
	return range.end - range.start;
}

static inline bool pin_range_has(struct pin_range range, struct pin_range other)
{
	return range.start <= other.start && range.end >= other.end;
}

static inline bool pin_range_has_address(struct pin_range range, uintptr_t addr)
{
	return addr >= range.start && addr < range.end;
}

static inline bool pin_range_meets(struct pin_range range, struct pin_range other)
{
	return range.start < other.end && other.start < range.end;
}

/* What two ranges that meet have in common. */
static inline struct pin_range pin_range_common(struct pin_range range, struct pin_range other)
{
	return (struct pin_range){range.start > other.start ? range.start : other.start,
				  range.end < other.end ? range.end : other.end};
}

/* The pages that [addr, addr + length) overlaps. */
static inline struct pin_range pin_range_of(const void *addr, size_t length)
{
	return (struct pin_range){PIN_ALIGN_DOWN((uintptr_t)addr, PIN_PAGE),
				  PIN_ALIGN_UP((uintptr_t)addr + length, PIN_PAGE)};
}

/* The granules that a range overlaps. */
static inline struct pin_range pin_range_granules(struct pin_range range)
{
	return (struct pin_range){PIN_ALIGN_DOWN(range.start, PIN_GRANULE),
				  PIN_ALIGN_UP(range.end, PIN_GRANULE)};
}
