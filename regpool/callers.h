/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that register memory, and whether one of them is discarding pages just now. The
 * message of MADV_DONTNEED comes before the pages go, and does not say whose it is: if it is
 * that of a thread which registers, the pages have gone when that thread registers again.
 */
#ifndef PIN_CALLERS_H
#define PIN_CALLERS_H

#include "allocator/base.h"

/* The calling thread registers. Async-signal-safe. */
void pin_callers_note(void);

/*
 * Whether one of the last few that did sleeps inside madvise(2), and about which addresses.
 * Opens files of /proc, so for a thread with descriptors of its own.
 */
bool pin_callers_discarding(uintptr_t *start, uintptr_t *end);

#endif
