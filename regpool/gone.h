/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Work that remains after a message that pages go away: to wait until those of MADV_DONTNEED
 * are gone, as its message comes before, and to update books.c, whose lock must not be waited
 * for. Only for the thread that notifies listeners.
 */
#ifndef PIN_GONE_H
#define PIN_GONE_H

#include "allocator/base.h"

/* A message of descriptor n. `what` is its UFFD_EVENT_*, or 0 if it is not known. */
struct pin_gone {
	unsigned n;
	int what;
	uintptr_t from, to;
	uintptr_t moved_to; /* for UFFD_EVENT_REMAP */
};

/*
 * Adds an event. Does not sleep, unless too many are pending. Descriptors whose listeners must
 * be notified again are added to *again, one bit each.
 */
void pin_gone_add(struct pin_gone gone, uint64_t *again);

/*
 * Does what can be done now. Returns how many events are left, to be tried again after a
 * millisecond. *again as above.
 */
unsigned pin_gone_retry(uint64_t *again);

/*
 * Whether an event of descriptor n is left that registrations must wait for: pages that are not
 * gone yet, or that were moved and are still watched by their old descriptor.
 */
bool pin_gone_is_awaited(unsigned n);

/* Forgets all events, in a forked child. */
void pin_gone_reset(void);

#endif
