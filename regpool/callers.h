/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that register memory, and whether one of them is discarding pages just now. The
 * message of MADV_DONTNEED comes before the pages go, and does not say whose it is: if it is
 * that of a thread which registers, the pages have gone when that thread registers again.
 */
#ifndef PIN_CALLERS_H
#define PIN_CALLERS_H

#include "allocator/base.h"

#include <sys/types.h>

/* The calling thread registers. Returns its number. Async-signal-safe. */
pid_t pin_callers_note(void);

/*
 * The number of one of the last few that did and sleeps inside madvise(2), and about which
 * addresses; or 0. Opens files of /proc, so for a thread with descriptors of its own.
 */
pid_t pin_callers_discarding(uintptr_t *start, uintptr_t *end);

#endif
