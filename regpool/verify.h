/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The proof of the promise: the page frame behind every page of a registered region
 * is noted when the region is registered, and compared in passes, and once more
 * before it is deregistered. Off, it costs one branch a real registration.
 */
#ifndef PIN_VERIFY_H
#define PIN_VERIFY_H

#include "allocator/base.h"

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
 * Makes a pass over all registered regions; turns verification on if it was off, when
 * there is nothing to compare with yet. *moved, unless NULL, gets pin_verified.moved;
 * it is written only on success. Returns 0, -EPERM when the kernel hides page frames,
 * -ENOTSUP when it has none to show or this is a forked child, -ENOMEM without room
 * for the frames, or -errno of /proc/self/pagemap. Thread-safe. Not from inside malloc.
 */
int pin_verify(size_t *moved);

/* The last pass, if PINALLOC_VERIFY is set and anything was ever registered. */
void pin_verify_at_exit(void);

/* Internal: what the hooks call. */
void pin_verify_note(uint32_t number);
void pin_verify_leave(uint32_t number);
void pin_verify_forget(uint32_t number);

/*
 * Region `number` was registered; before its entry is READY, so that it is not
 * deregistered meanwhile.
 */
static inline void pin_verify_registered(uint32_t number)
{
	if (PIN_UNLIKELY(atomic_load(&pin_verify_on)))
		pin_verify_note(number);
}

/*
 * A registration of it is about to go; its entry is BUSY since before the flag is
 * read. So a pass that turns the flag on does not rely on a registration that goes.
 */
static inline void pin_verify_deregister(uint32_t number)
{
	if (PIN_UNLIKELY(atomic_load(&pin_verify_on)))
		pin_verify_leave(number);
}

/* A registration of it is gone already, and nobody knows since when. */
static inline void pin_verify_gone(uint32_t number)
{
	if (PIN_UNLIKELY(atomic_load(&pin_verify_on)))
		pin_verify_forget(number);
}

#endif
