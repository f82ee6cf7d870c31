/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remembers which threads register memory, to find out whether one of them is discarding pages.
 * The message about MADV_DONTNEED comes before the pages are gone and does not name the caller.
 * If a thread that registers memory is the caller, the pages are gone when it registers again.
 */
#ifndef PIN_CALLERS_H
#define PIN_CALLERS_H

#include "allocator/base.h"

#include <sys/types.h>

/* Remembers the calling thread. Returns its thread id. Async-signal-safe. */
pid_t pin_callers_note(void);

/*
 * The thread id of one of the last few such threads that is inside madvise(2), and its address
 * range; otherwise 0. Opens files in /proc, so it must be called by a thread with a descriptor
 * table of its own.
 */
pid_t pin_callers_discarding(uintptr_t *start, uintptr_t *end);

#endif
