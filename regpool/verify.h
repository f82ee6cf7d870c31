/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks that registered pages do not move. The page frame behind every registered page of the
 * heap is recorded at registration, compared in periodic passes, and compared once more before
 * deregistration.
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

/*
 * Counts the memory regions of granules, and compares page frames if verification is on. Call
 * after a range was registered. A thread that does not see yet that verification is on records
 * nothing; the first pass, which follows, does so.
 */
void pin_verify_registered(struct pin_range range);

/* Call before a range is deregistered. If that fails, call pin_verify_registered() again. */
void pin_verify_deregister(struct pin_range range);

/* Call when a registration turned out to be gone, at an unknown time: nothing is compared. */
void pin_verify_gone(struct pin_range range);

#endif
