/* SPDX-License-Identifier: BSD-2-Clause */
/* One thread at a time writes a report, and none after the last one. */
#ifndef PIN_REPORT_LOCK_H
#define PIN_REPORT_LOCK_H

#include "allocator/io.h"

#include <stdbool.h>

/*
 * Waits for the lock for ten seconds. Returns false if they are up, if the last report is
 * over, or if this thread holds the lock already. (But the last report gets the
 * lock its own thread holds: what a signal has interrupted does not go on.)
 *
 * Until the release the thread is shielded.
 * Async-signal-safe; leaves errno alone.
 */
bool pin_report_lock_take(struct pin_io_shield *shield, bool is_last);

/* With the same is_last. Once the last report is written nobody gets the lock any more. */
void pin_report_lock_release(struct pin_io_shield *shield, bool is_last);

#endif
