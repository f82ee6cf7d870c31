/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Spans hold the heap's memory. A span is a contiguous range of addresses for blocks of one run
 * map, and so of one memory node. It grows at its end and never shrinks. Most processes have
 * one span, in which all free memory merges.
 *
 * A span takes addresses from the reserve, its room, many at a time. It continues in the next
 * ones if no other span has taken any in between; otherwise a new span begins there. Two spans
 * never meet: between them is a granule at least, and what the heap knows of its pages is 0.
 */
#pragma once

#include "allocator/base.h"

#include <stdatomic.h>

struct pin_span {
	/* Multiple of PIN_GRANULE. Valid only if `length`, read before it, is not 0. */
	_Atomic uintptr_t start;
	_Atomic size_t length; /* bytes, a multiple of PIN_GRANULE; never decreases */
	size_t room;   /* bytes of addresses it has; only for the thread that grows it */
	uint32_t node; /* memory node of the thread that began the span */
	bool is_fixed; /* its pages are of the system's pool of huge pages; it does not grow */
};

/*
 * Adds n_bytes of zeroed, writable memory, a multiple of PIN_GRANULE, at the end of *span. If
 * *span is NULL or cannot continue, begins a new span with at least so much room, unless that
 * is 0, and sets *span to it. Returns the address of the new memory, or NULL if addresses or
 * memory are used up. Never allocates. The caller of this function, or of pin_span_add(), holds
 * the lock of the run map.
 */
char *pin_span_grow(struct pin_span **span, size_t n_bytes, size_t room, uint32_t node);

/*
 * Adds a span over [start, start + n_bytes), addresses carved from the reserve that have memory
 * already, all of it in use: huge pages of the system's pool. A granule behind them was carved
 * with them. Returns false if there are too many spans. It does not grow.
 */
bool pin_span_add(uintptr_t start, size_t n_bytes, uint32_t node);

/*
 * The span that contains all of [addr, addr + length), or NULL. Lock-free, async-signal-safe.
 */
const struct pin_span *pin_span_find(const void *addr, size_t length);

/*
 * The number of spans, and span i. A span whose length is 0 is not complete yet. Lock-free.
 */
extern PIN_HIDDEN _Atomic uint32_t pin_n_spans; /* internal */

static inline uint32_t pin_span_count(void)
{
	return atomic_load_explicit(&pin_n_spans, memory_order_acquire);
}

extern PIN_HIDDEN struct pin_span pin_first_span;    /* internal: most programs have no other */
extern PIN_HIDDEN struct pin_span pin_later_spans[]; /* internal */

static inline struct pin_span *pin_span_get(uint32_t i)
{
	return i ? &pin_later_spans[i - 1] : &pin_first_span;
}

/*
 * Bytes by which the calling thread has grown the heap since it last set this to 0. The heap
 * grows under locks, where the stack must not be walked: pin_live_settle() does it later.
 */
extern __thread size_t pin_span_grown PIN_HIDDEN __attribute__((tls_model("initial-exec")));

/* The number of bytes in all spans, and of growth steps so far. Lock-free. */
size_t pin_span_bytes(void);
uint32_t pin_span_steps(void);
