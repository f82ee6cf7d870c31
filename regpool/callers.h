/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Remembers which threads register memory, to find out whether one of them is discarding pages.
 * The message about MADV_DONTNEED comes before the pages are gone and does not name the caller.
 * If a thread that registers memory is the caller, the pages are gone when it registers again.
 */
#ifndef PIN_CALLERS_H
#define PIN_CALLERS_H

#include "regpool/history.h"

#include <sys/types.h>

/* Remembers the calling thread. Returns its thread id. Async-signal-safe. */
pid_t pin_callers_note(void);

/* A thread, 0 if it is not known, and the pages that it discards. */
struct pin_discarder {
	pid_t thread;
	struct pin_pages pages;
};

/*
 * One of the last few such threads that is inside madvise(2), if there is one. Opens files in
 * /proc, so it must be called by a thread with a descriptor table of its own.
 */
struct pin_discarder pin_callers_discarding(void);

#endif
