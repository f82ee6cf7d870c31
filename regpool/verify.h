/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The proof of the promise: the page frame behind every page of the heap that is registered
 * is noted when that is done, and compared in passes, and once more before it is
 * deregistered. Off, it costs one branch a real registration.
 */
#ifndef PIN_VERIFY_H
#define PIN_VERIFY_H

#include "regpool/granule.h"

#include <stdatomic.h>

/* Never reset. A page is checked each time it is compared, and moved each time it differs. */
struct pin_verified {
	_Atomic uint64_t checked, moved;
};
extern struct pin_verified pin_verified;

/* Internal to the hooks below: whether frames are noted. Once on, it stays so. */
extern _Atomic bool pin_verify_on;

/* Turns it on if PINALLOC_VERIFY says so. Once, from the constructor. */
void pin_verify_init(void);

/*
 * Makes a pass over all registered memory; turns verification on if it was off, when
 * there is nothing to compare with yet. *moved, unless NULL, gets pin_verified.moved;
 * it is written only on success. Returns 0, -EPERM when the kernel hides page frames,
 * -ENOTSUP when it has none to show or this is a forked child, -ENOMEM without room
 * for the frames, or -errno of /proc/self/pagemap. Thread-safe. Not from inside malloc.
 */
int pin_verify(size_t *moved);

/* The last pass, if PINALLOC_VERIFY is set and anything was ever registered. */
void pin_verify_at_exit(void);

/* Internal: what the hooks call. */
void pin_verify_note(struct pin_range range);
void pin_verify_leave(struct pin_range range);
void pin_verify_forget(struct pin_range range);

/*
 * A range was registered. Who does not see the flag finds nothing known of it: passes begin
 * when it is set.
 */
static inline void pin_verify_registered(struct pin_range range)
{
	if (PIN_UNLIKELY(atomic_load(&pin_verify_on)))
		pin_verify_note(range);
	else
		for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
			pin_granule_enter(pin_granule_of(p));
}

static inline void pin_verify_left(struct pin_range range)
{
	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		pin_granule_leave(pin_granule_of(p));
}

/* A registration of it is about to go. If it stays after all, it was registered anew. */
static inline void pin_verify_deregister(struct pin_range range)
{
	if (PIN_UNLIKELY(atomic_load(&pin_verify_on)))
		pin_verify_leave(range);
	else
		pin_verify_left(range);
}

/* A registration of it is gone already, and nobody knows since when. */
static inline void pin_verify_gone(struct pin_range range)
{
	if (PIN_UNLIKELY(atomic_load(&pin_verify_on)))
		pin_verify_forget(range);
	else
		pin_verify_left(range);
}

#endif
