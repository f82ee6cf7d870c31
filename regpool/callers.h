/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What other threads are doing.
 *
 * Which of those that register memory is discarding pages: the message about MADV_DONTNEED
 * comes before the pages are gone and does not name the caller. If a thread that registers
 * memory is the caller, the pages are gone when it registers again.
 *
 * And whether a thread waits in vain: for a mutex whose owner sleeps in a call that replaces
 * watched pages, until that thread goes on.
 */
#ifndef PIN_CALLERS_H
#define PIN_CALLERS_H

#include "regpool/uffd.h"

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

/*
 * The thread that owns the mutex this thread sleeps for, if it sleeps in such a call; otherwise
 * 0, also if that cannot be told. As above for the calling thread.
 */
pid_t pin_callers_behind(pid_t thread);

#endif
