/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is left to do when a message has said that pages go: to wait until those of
 * MADV_DONTNEED, whose message comes first, have gone, and to put the books right, for which
 * their lock is not waited for. Everything for the one thread that tells listeners.
 */
#ifndef PIN_GONE_H
#define PIN_GONE_H

#include "allocator/base.h"

/* What a message of descriptor n has said; `what` is userfaultfd's, 0: nothing is known. */
struct pin_gone {
	unsigned n;
	int what;
	uintptr_t from, to;
	uintptr_t moved_to; /* if it was moved */
};

/*
 * Begins. Does not wait, unless it has much to do already. Descriptors that are to be told
 * again are added, a bit each.
 */
void pin_gone_begin(struct pin_gone gone, uint64_t *again);

/*
 * Does what can be done by now. Returns how much is left, to be tried again in a millisecond.
 * Descriptors as above.
 */
unsigned pin_gone_work(uint64_t *again);

/*
 * Whether something of descriptor n is left that a registration has to wait for: pages that
 * have not gone yet, or that have come with the watch they had elsewhere.
 */
bool pin_gone_is_awaited(unsigned n);

/* In a forked child: nothing is left to do. */
void pin_gone_leave(void);

#endif
