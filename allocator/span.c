/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/span.h"
#include "allocator/huge.h"
#include "allocator/log.h"
#include "allocator/reserve.h"

#include <errno.h>

/* Chunks double, so that there are few. */
#define MOST_SPANS 512

/*
 * A chunk is at least so much, but no more than a share of what is left: the other end of the
 * reserve needs some as well. Tables that go by address are committed up to the last span.
 */
#define LEAST_CHUNK   (16 * PIN_GIB)
#define SHARE_OF_LEFT 16

PIN_WRITTEN_FIRST static _Atomic uint32_t count;
PIN_WRITTEN_FIRST static _Atomic uint32_t steps;
PIN_WRITTEN_FIRST static _Atomic size_t bytes;
PIN_WRITTEN_FIRST static void (*_Atomic tell)(void);
/* Filled in the order of `count`; one without a length is not there yet. */
static struct pin_span spans[MOST_SPANS];

static size_t chunk_size(const struct pin_span *span, size_t n_bytes)
{
	size_t n = span && span->room > LEAST_CHUNK ? span->room : LEAST_CHUNK;
	size_t most = pin_reserve_left() / SHARE_OF_LEFT;

	n = n < most ? n : most;
	return PIN_ALIGN_UP(n > n_bytes ? n : n_bytes, PIN_GRANULE);
}

static struct pin_span *begin(uintptr_t start, size_t room, uint32_t node)
{
	uint32_t i = atomic_load(&count);

	do {
		if (i == MOST_SPANS)
			return NULL;
	} while (!atomic_compare_exchange_weak(&count, &i, i + 1));
	spans[i].start = start;
	spans[i].used = start;
	spans[i].room = room;
	spans[i].node = node;
	return &spans[i];
}

/* Room for n_bytes more at the end of the span, or in a new one. */
static struct pin_span *make_room(struct pin_span *span, size_t n_bytes, uint32_t node)
{
	size_t size = chunk_size(span, n_bytes);
	uintptr_t chunk = pin_reserve_carve_lower(size);

	if (!chunk) {
		size = n_bytes;
		chunk = pin_reserve_carve_lower(size);
	}
	if (!chunk)
		return NULL;
	if (!span || span->start + span->room != chunk)
		return begin(chunk, size, node);
	span->room += size;
	return span;
}

/* Nobody notes any more what is used of it. */
static void close_span(struct pin_span *span)
{
	atomic_store(&span->used, span->start + span->length);
}

static void note_growth(struct pin_span *span, size_t n_bytes)
{
	void (*listener)(void);

	atomic_store_explicit(&span->length, span->length + n_bytes, memory_order_release);
	atomic_fetch_add_explicit(&bytes, n_bytes, memory_order_relaxed);
	atomic_fetch_add_explicit(&steps, 1, memory_order_relaxed);
	pin_debug(PIN_SAYS_GROWTH "%s to %p", PIN_SIZE(n_bytes),
		  (void *)(span->start + span->length));
	listener = atomic_load_explicit(&tell, memory_order_acquire);
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
		/* Also where it fails: the room is there for the next one. */
		*span = grown;
		p = (char *)grown->start + grown->length;
		error = pin_huge_commit(p, n);
		/* Another mapping has got into it: the rest is left, and the span ends here. */
		if (error == -EEXIST)
			grown = NULL;
	} while (error == -EEXIST);
	if (error)
		return NULL;
	note_growth(grown, n);
	return p;
}

const struct pin_span *pin_span_find(const void *addr, size_t length)
{
	for (uint32_t i = 0; i < pin_span_count(); i++) {
		size_t has = atomic_load_explicit(&spans[i].length, memory_order_acquire);
		size_t offset = (uintptr_t)addr -
				atomic_load_explicit(&spans[i].start, memory_order_relaxed);

		if (length <= has && offset <= has - length && has)
			return &spans[i];
	}
	return NULL;
}

size_t pin_span_used(const void *addr, size_t n_bytes)
{
	const struct pin_span *span = pin_span_find(addr, n_bytes);
	uintptr_t used;

	if (!span)
		return n_bytes;
	used = atomic_load(&span->used);
	if (used <= (uintptr_t)addr)
		return 0;
	return used - (uintptr_t)addr < n_bytes ? used - (uintptr_t)addr : n_bytes;
}

bool pin_span_begins(const void *addr)
{
	for (uint32_t i = 0; i < pin_span_count(); i++)
		if (spans[i].start == (uintptr_t)addr)
			return true;
	return false;
}

uint32_t pin_span_count(void)
{
	return atomic_load_explicit(&count, memory_order_acquire);
}

const struct pin_span *pin_span_get(uint32_t i)
{
	return &spans[i];
}

size_t pin_span_bytes(void)
{
	return atomic_load_explicit(&bytes, memory_order_relaxed);
}

uint32_t pin_span_steps(void)
{
	return atomic_load_explicit(&steps, memory_order_relaxed);
}

void pin_span_subscribe(void (*listener)(void))
{
	atomic_store_explicit(&tell, listener, memory_order_release);
}
