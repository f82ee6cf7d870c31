/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The heap grows under locks, where the stack must not be walked. So growth is only noted
 * there, and accounted for when the same call of malloc has released them.
 */
#ifndef PIN_GROWTH_H
#define PIN_GROWTH_H

#include "allocator/base.h"

/* What is called after growth was accounted for, inside malloc; NULL for nothing. Set once. */
extern void (*pin_growth_listener)(void);

/* Internal: bytes by which the calling thread has grown the heap, not accounted for yet. */
extern __thread size_t pin_growth_pending __attribute__((tls_model("initial-exec")));
void pin_growth_account(void);

/* Notes that the heap has grown by n_bytes. */
static inline void pin_growth_note(size_t n_bytes)
{
	pin_growth_pending += n_bytes;
}

/*
 * Records the stack and the time of growth that has been noted. Must be called with no lock
 * held.
 */
static inline void pin_growth_settle(void)
{
	if (PIN_UNLIKELY(pin_growth_pending))
		pin_growth_account();
}

#endif
