/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Growth of the heap happens under jemalloc's locks, where no stack may be walked.
 * It is noted there, and settled when the same call of malloc has let the locks go.
 */
#ifndef PIN_GROWTH_H
#define PIN_GROWTH_H

#include "allocator/base.h"

/* Internal: bytes by which the calling thread has grown the heap, not settled yet. */
extern __thread size_t pin_growth_pending __attribute__((tls_model("initial-exec")));
extern __thread bool pin_growth_deferred __attribute__((tls_model("initial-exec")));
void pin_growth_account(void);

/* In the page layer: the heap has grown. */
static inline void pin_growth_note(size_t n_bytes)
{
	pin_growth_pending += n_bytes;
}

/* Where no lock of jemalloc's is held: notes whose growth it was, and the moment. */
static inline void pin_growth_settle(void)
{
	if (PIN_UNLIKELY(pin_growth_pending) && !pin_growth_deferred)
		pin_growth_account();
}

/* Until pin_growth_settle_now() this thread settles nothing: it takes a lock of jemalloc's. */
static inline void pin_growth_defer(void)
{
	pin_growth_deferred = true;
}

static inline void pin_growth_settle_now(void)
{
	if (PIN_UNLIKELY(pin_growth_pending))
		pin_growth_account();
}

#endif
