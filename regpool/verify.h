/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks that registered pages do not move. The page frame behind every registered page of the
 * heap is recorded at registration, compared in periodic passes, and compared once more before
 * deregistration. When verification is off, this costs one branch for each real registration.
 */
#ifndef PIN_VERIFY_H
#define PIN_VERIFY_H

#include "regpool/granule.h"

#include <stdatomic.h>

/* Never reset. Each comparison of a page counts as checked, each difference as moved. */
struct pin_verified {
	_Atomic uint64_t checked, moved;
};
extern struct pin_verified pin_verified;

/* Internal to the hooks below: whether page frames are recorded. Never goes back to false. */
extern _Atomic bool pin_verify_on;

/* Turns verification on if PINALLOC_VERIFY asks for it. Called once, from the constructor. */
void pin_verify_init(void);

/*
 * Makes a pass over all registered memory. If verification was off it is turned on, and this
 * pass has nothing to compare with yet. On success *moved, unless NULL, receives
 * pin_verified.moved. Returns 0; -EPERM if the kernel hides page frames; -ENOTSUP without
 * /proc/self/pagemap or in a forked child; -ENOMEM without memory for the frames; or -errno
 * from reading /proc/self/pagemap. Thread-safe. Must not be called from inside malloc.
 */
int pin_verify(size_t *moved);

/* Makes the last pass, if PINALLOC_VERIFY is set and anything was ever registered. */
void pin_verify_at_exit(void);

/* Internal: the slow paths of the hooks. */
void pin_verify_note(struct pin_range range);
void pin_verify_leave(struct pin_range range);
void pin_verify_forget(struct pin_range range);

/*
 * Call after a range was registered. A thread that does not see the flag yet records nothing;
 * the first pass, which follows the setting of the flag, does so.
 */
static inline void pin_verify_registered(struct pin_range range)
{
	if (PIN_UNLIKELY(atomic_load(&pin_verify_on)))
		pin_verify_note(range);
	else
		for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
			pin_granule_enter(pin_granule_of(p));
}

static inline void pin_verify_uncount(struct pin_range range)
{
	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		pin_granule_leave(pin_granule_of(p));
}

/* Call before a range is deregistered. If that fails, call pin_verify_registered() again. */
static inline void pin_verify_deregister(struct pin_range range)
{
	if (PIN_UNLIKELY(atomic_load(&pin_verify_on)))
		pin_verify_leave(range);
	else
		pin_verify_uncount(range);
}

/* Call when a registration turned out to be gone, at an unknown time: nothing is compared. */
static inline void pin_verify_gone(struct pin_range range)
{
	if (PIN_UNLIKELY(atomic_load(&pin_verify_on)))
		pin_verify_forget(range);
	else
		pin_verify_uncount(range);
}

#endif
