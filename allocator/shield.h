/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The signals that write(2) sends to its own thread, SIGPIPE if a pipe has no reader and
 * SIGXFSZ if a file may not become longer, would end programs that write nothing there
 * themselves; and what opens, writes or closes a file is where a thread is cancelled.
 *
 * All functions are thread-safe and async-signal-safe, are no cancellation points, and preserve
 * errno.
 */
#ifndef PIN_SHIELD_H
#define PIN_SHIELD_H

#include "allocator/base.h"

#include <signal.h>

struct pin_shield {
	sigset_t mask, pending;
	int cancel_state;
};

/*
 * Until the end the calling thread gets none, nor is it cancelled. Those that came meanwhile
 * nobody gets.
 */
void pin_shield_begin(struct pin_shield *shield);
void pin_shield_end(const struct pin_shield *shield);

#endif
