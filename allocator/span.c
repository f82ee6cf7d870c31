/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/span.h"
#include "allocator/huge.h"
#include "allocator/log.h"
#include "allocator/reserve.h"

#include <errno.h>

/* Enough, because the room that a span takes doubles. */
#define MAX_SPANS 512

/*
 * How many addresses a span takes at least, and at most as a share of those left: the other
 * end of the reserve needs some too, and tables with an element for each page are committed
 * up to the last span.
 */
#define MIN_ROOM	  (16 * PIN_GIB)
#define MAX_SHARE_OF_LEFT 16

PIN_WRITTEN_FIRST _Atomic uint32_t pin_n_spans;
PIN_WRITTEN_FIRST static _Atomic uint32_t n_steps;
PIN_WRITTEN_FIRST static _Atomic size_t total_bytes;
PIN_WRITTEN_FIRST static void (*_Atomic growth_listener)(void);
/* Filled in order. A span with length 0 is not complete yet. */
PIN_WRITTEN_FIRST static struct pin_span first_span; /* most programs have no other */
static struct pin_span later_spans[MAX_SPANS - 1];

static struct pin_span *span_at(uint32_t i)
{
	return i ? &later_spans[i - 1] : &first_span;
}

static size_t new_room(const struct pin_span *span, size_t n_bytes)
{
	size_t n = span && span->room > MIN_ROOM ? span->room : MIN_ROOM;
	size_t most = pin_reserve_left() / MAX_SHARE_OF_LEFT;

	n = n < most ? n : most;
	return PIN_ALIGN_UP(n > n_bytes ? n : n_bytes, PIN_GRANULE);
}

static struct pin_span *begin_span(uintptr_t start, size_t room, uint32_t node)
{
	uint32_t i = atomic_load(&pin_n_spans);
	struct pin_span *span;

	do {
		if (i == MAX_SPANS)
			return NULL;
	} while (!atomic_compare_exchange_weak(&pin_n_spans, &i, i + 1));
	span = span_at(i);
	span->start = start;
	span->used = start;
	span->room = room;
	span->node = node;
	return span;
}

/* Makes room for n_bytes more addresses, at the end of the span or in a new one. */
static struct pin_span *make_room(struct pin_span *span, size_t n_bytes, uint32_t node)
{
	size_t size = new_room(span, n_bytes);
	uintptr_t at = pin_reserve_carve_lower(size);

	if (!at) {
		size = n_bytes;
		at = pin_reserve_carve_lower(size);
	}
	if (!at)
		return NULL;
	if (!span || span->start + span->room != at)
		return begin_span(at, size, node);
	span->room += size;
	return span;
}

/* Nothing records use of a span that no longer grows, so all of it counts as used. */
static void close_span(struct pin_span *span)
{
	atomic_store(&span->used, span->start + span->length);
}

static void note_growth(struct pin_span *span, size_t n_bytes)
{
	void (*listener)(void);

	atomic_store_explicit(&span->length, span->length + n_bytes, memory_order_release);
	atomic_fetch_add_explicit(&total_bytes, n_bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&n_steps, 1, memory_order_relaxed);
	pin_debug(PIN_SAYS_GROWTH "%s to %p", PIN_SIZE(n_bytes),
		  (void *)(span->start + span->length));
	listener = atomic_load_explicit(&growth_listener, memory_order_acquire);
	if (listener)
		listener();
}

char *pin_span_grow(struct pin_span **span, size_t n_bytes, uint32_t node)
{
	size_t n = PIN_ALIGN_UP(n_bytes, PIN_GRANULE);
	struct pin_span *grown = *span;
	char *p;
	int error;

	if (n < n_bytes)
		return NULL;
	do {
		if (!grown || grown->room - grown->length < n)
			grown = make_room(grown, n, node);
		if (!grown)
			return NULL;
		if (*span && *span != grown)
			close_span(*span);
		/* Set even if committing fails: the next caller can use the addresses. */
		*span = grown;
		p = (char *)grown->start + grown->length;
		error = pin_huge_commit(p, n);
		/*
		 * Another mapping of the process is there: leave the rest of this span unused
		 * and begin a new one.
		 */
		if (error == -EEXIST)
			grown = NULL;
	} while (error == -EEXIST);
	if (error)
		return NULL;
	note_growth(grown, n);
	return p;
}

bool pin_span_add(uintptr_t start, size_t n_bytes, uint32_t node)
{
	struct pin_span *span = begin_span(start, n_bytes, node);

	if (!span)
		return false;
	span->is_fixed = true;
	atomic_store(&span->used, start + n_bytes);
	note_growth(span, n_bytes);
	return true;
}

const struct pin_span *pin_span_find(const void *addr, size_t length)
{
	for (uint32_t i = 0; i < pin_span_count(); i++) {
		struct pin_span *span = span_at(i);
		size_t has = atomic_load_explicit(&span->length, memory_order_acquire);
		size_t offset = (uintptr_t)addr -
				atomic_load_explicit(&span->start, memory_order_relaxed);

		if (length <= has && offset <= has - length && has)
			return span;
	}
	return NULL;
}

const struct pin_span *pin_span_get(uint32_t i)
{
	return span_at(i);
}

size_t pin_span_bytes(void)
{
	return atomic_load_explicit(&total_bytes, memory_order_relaxed);
}

uint32_t pin_span_steps(void)
{
	return atomic_load_explicit(&n_steps, memory_order_relaxed);
}

void pin_span_subscribe(void (*listener)(void))
{
	atomic_store_explicit(&growth_listener, listener, memory_order_release);
}
