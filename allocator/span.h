/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Spans: where the heap's memory is. A span is a range of addresses without a gap that grows
 * at its end and never shrinks, for blocks of one memory node. A machine without nodes has
 * one, in which all free memory merges.
 *
 * Addresses are taken from the reserve in chunks. As long as nobody else takes one between,
 * a span goes on in the next; else whoever grows begins another span.
 */
#ifndef PIN_SPAN_H
#define PIN_SPAN_H

#include "allocator/base.h"

#include <stdatomic.h>

struct pin_span {
	/* Address, a multiple of PIN_GRANULE; not to be read before `length`, while that is 0.
	 */
	_Atomic uintptr_t start;
	_Atomic size_t length;	/* bytes, a multiple of PIN_GRANULE; never less than before */
	_Atomic uintptr_t used; /* nobody has had what is from this address on: zeroes */
	size_t room;		/* bytes of addresses it has; who grows it */
	uint32_t node;		/* memory node of the thread that began it */
};

/*
 * Makes memory of n_bytes, rounded up to PIN_GRANULE, at the end of *span, or in a span that
 * *span is from then on; NULL begins one. Zeroed and writable. Returns its address, or NULL
 * when the addresses are used up or the kernel has no memory to commit. For each `span` one
 * caller at a time; never allocates.
 */
char *pin_span_grow(struct pin_span **span, size_t n_bytes, uint32_t node);

/* Somebody gets memory up to this address, of any span. Lock-free. */
static inline void pin_span_note_use(struct pin_span *span, uintptr_t end)
{
	uintptr_t used = atomic_load_explicit(&span->used, memory_order_relaxed);

	/* Spans begun later are higher up: what is below is another's. */
	while (PIN_UNLIKELY(used < end) &&
	       !atomic_compare_exchange_weak(&span->used, &used, end))
		;
}

/* How many bytes from an address on have been used, or may have been: n_bytes at most. */
size_t pin_span_used(const void *addr, size_t n_bytes);

/*
 * The span in which [addr, addr + length) lies as a whole, or NULL. Lock-free,
 * async-signal-safe.
 */
const struct pin_span *pin_span_find(const void *addr, size_t length);

/* Whether an address is the first of a span: memory before it is not its own. */
bool pin_span_begins(const void *addr);

/* How many spans there are, and span i. Lock-free. */
uint32_t pin_span_count(void);
const struct pin_span *pin_span_get(uint32_t i);

/* Bytes in all of them, and by how many steps they came to be. Lock-free. */
size_t pin_span_bytes(void);
uint32_t pin_span_steps(void);

/*
 * Who is told that the heap has grown. The listener runs under jemalloc's locks: it may not
 * allocate, block, or call anything that does. One listener.
 */
void pin_span_subscribe(void (*listener)(void));

#endif
