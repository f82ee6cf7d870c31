/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/span.h"
#include "allocator/huge.h"
#include "allocator/log.h"
#include "allocator/pages.h"
#include "allocator/reserve.h"

#define MAX_SPANS 2048

PIN_WRITTEN_FIRST _Atomic uint32_t pin_n_spans;
PIN_WRITTEN_FIRST static _Atomic uint32_t n_steps;
PIN_WRITTEN_FIRST static _Atomic size_t total_bytes;
__thread size_t pin_span_grown;
/* Filled in order. A span with length 0 is not complete yet. */
PIN_WRITTEN_FIRST struct pin_span pin_first_span;
struct pin_span pin_later_spans[MAX_SPANS - 1];

/* Of each granule the number of its span, plus one; 0 also for those of the first span. */
static struct pin_table spans_of_granules = PIN_TABLE(uint16_t, SIZE_MAX, PIN_GRANULE);

/* Notes which span these addresses are of, and has tables for them. False without memory. */
static bool cover(const struct pin_span *span, uintptr_t start, size_t n_bytes)
{
	size_t i = pin_granule_of(start), end = pin_granule_of(start + n_bytes);

	if (pin_pages_cover(start + n_bytes))
		return false;
	if (span == &pin_first_span)
		return true;
	if (pin_table_ensure(&spans_of_granules, end))
		return false;
	for (; i < end; i++)
		*pin_table_at(&spans_of_granules, uint16_t,
			      i) = (uint16_t)(span - pin_later_spans + 2);
	return true;
}

static struct pin_span *begin_span(uintptr_t start, size_t room, uint32_t node)
{
	uint32_t i = atomic_load(&pin_n_spans);
	struct pin_span *span = pin_span_get(i);

	if (i == MAX_SPANS)
		return NULL;
	span->start = start;
	span->room = room;
	span->node = node;
	atomic_store_explicit(&pin_n_spans, i + 1, memory_order_release);
	return span;
}

/* Makes room for n_bytes more addresses, at the end of the span or in a new one. */
static struct pin_span *make_room(struct pin_span *span, size_t n_bytes, size_t room,
				  uint32_t node)
{
	size_t least = n_bytes + PIN_GRANULE;
	size_t size = PIN_ALIGN_UP(room > least ? room : least, PIN_GRANULE);
	uintptr_t at = pin_reserve_carve(size);

	if (!at)
		return NULL;
	/* The last granule is left out: if two spans met, jemalloc would merge pages of both.
	 */
	if (!span || span->start + span->room + PIN_GRANULE != at)
		return room ? begin_span(at, size - PIN_GRANULE, node) : NULL;
	span->room += size;
	return span;
}

static void note_growth(struct pin_span *span, size_t n_bytes)
{
	atomic_store_explicit(&span->length, span->length + n_bytes, memory_order_release);
	atomic_fetch_add_explicit(&total_bytes, n_bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&n_steps, 1, memory_order_relaxed);
	pin_span_grown += n_bytes;
	pin_debug("the heap grows by %s to %p", PIN_SIZE(n_bytes),
		  (void *)(span->start + span->length));
}

char *pin_span_grow(struct pin_span **span, size_t n_bytes, size_t room, uint32_t node)
{
	struct pin_span *grown = *span;
	char *p;
	int error;

	do {
		if (!grown || grown->room - grown->length < n_bytes)
			grown = make_room(grown, n_bytes, room, node);
		if (!grown)
			return NULL;
		/* Set even if committing fails: the next caller can use the addresses. */
		*span = grown;
		p = (char *)grown->start + grown->length;
		if (!cover(grown, (uintptr_t)p, n_bytes))
			return NULL;
		error = pin_huge_commit(p, n_bytes);
		/*
		 * Another mapping of the process is there: leave the rest of this span unused
		 * and begin a new one.
		 */
		if (error == -EEXIST)
			grown = NULL;
	} while (error == -EEXIST);
	if (error)
		return NULL;
	note_growth(grown, n_bytes);
	return p;
}

bool pin_span_add(uintptr_t start, size_t n_bytes, uint32_t node)
{
	struct pin_span *span = begin_span(start, n_bytes, node);

	if (!span || !cover(span, start, n_bytes))
		return false;
	span->is_fixed = true;
	note_growth(span, n_bytes);
	return true;
}

static const struct pin_span *find_later(uintptr_t addr)
{
	size_t i = addr - pin_reserve.base < pin_reserve.size ? pin_granule_of(addr) : SIZE_MAX;
	uint16_t number;

	if (i >= atomic_load_explicit(&spans_of_granules.committed, memory_order_acquire))
		return NULL;
	number = *pin_table_at(&spans_of_granules, uint16_t, i);
	return number ? pin_span_get(number - 1u) : NULL;
}

static bool contains(const struct pin_span *span, uintptr_t addr, size_t length)
{
	size_t has = atomic_load_explicit(&span->length, memory_order_acquire);
	size_t offset = addr - atomic_load_explicit(&span->start, memory_order_relaxed);

	return length <= has && offset <= has - length && has;
}

const struct pin_span *pin_span_find(const void *addr, size_t length)
{
	const struct pin_span *span = &pin_first_span;

	if (PIN_LIKELY(contains(span, (uintptr_t)addr, length)))
		return span;
	span = find_later((uintptr_t)addr);
	return span && contains(span, (uintptr_t)addr, length) ? span : NULL;
}

size_t pin_span_bytes(void)
{
	return atomic_load_explicit(&total_bytes, memory_order_relaxed);
}

uint32_t pin_span_steps(void)
{
	return atomic_load_explicit(&n_steps, memory_order_relaxed);
}
