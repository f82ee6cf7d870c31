/* SPDX-License-Identifier: BSD-2-Clause */
/* The thread that registers resident memory ahead of requests. */
#ifndef PIN_AHEAD_H
#define PIN_AHEAD_H

struct pin_access_set;
struct pin_segment;

/*
 * Starts the thread, unless it runs. pin_state_changed() wakes it. Thread-safe; must not
 * be called from inside malloc.
 */
void pin_ahead_start(void);

/* Call when an access set was armed: registers all segments in it, in this thread. */
void pin_ahead_add_set(struct pin_access_set *set);

/* Call when a segment has been touched: registers it in all sets that are armed. */
void pin_ahead_add_segment(struct pin_segment *segment);

#endif
