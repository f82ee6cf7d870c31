/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The report lock: one thread at a time writes a report, and no signal that the writing causes
 * reaches the program.
 */
#ifndef PIN_REPORT_LOCK_H
#define PIN_REPORT_LOCK_H

#include "allocator/shield.h"
#include "preload/report/trigger.h"

struct pin_report_lock {
	bool taken_over; /* from another thread, which may still be writing */
	/* What pin_report_lock_release() restores. */
	int cancel_state;
	struct pin_shield shield;
};

/*
 * Waits for the lock: ten seconds, or one if the trigger is signal-safe. After that the last
 * report takes it over from the thread that holds it. Returns false if the time is up, if
 * the last report has begun or is over, or if this thread holds the lock already. (But the last
 * report gets the lock its own thread holds, unless it is of a crash: what a signal has
 * interrupted does not go on.)
 *
 * Until the release the thread cannot be cancelled, nor ended by SIGPIPE or SIGXFSZ.
 * Async-signal-safe; leaves errno alone.
 */
bool pin_report_lock_take(struct pin_report_lock *lock,
			  const struct pin_report_trigger *trigger);

/* Whether another thread has taken over the lock that this thread took. */
bool pin_report_lock_is_lost(void);

/* With the same trigger. Once the last report is written nobody gets the lock any more. */
void pin_report_lock_release(struct pin_report_lock *lock,
			     const struct pin_report_trigger *trigger);

#endif
