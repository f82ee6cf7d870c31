/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whose turn it is to write a report: one thread's at a time, and nothing that
 * writing brings about reaches the program.
 */
#ifndef PIN_TURN_H
#define PIN_TURN_H

#include "allocator/base.h"

#include <signal.h>

struct pin_turn {
	bool apart; /* another thread, which has lost the turn, may still be writing */
	/* What the end of the turn restores. */
	int cancelling;
	sigset_t mask, pending;
};

struct pin_occasion;

/*
 * Waits for the turn: ten seconds, or one on a careful occasion; the last is then taken
 * from the thread that has it. False when it does not come, when the last has been
 * taken, or when this thread has it already, unless it takes it over because what it
 * interrupts never goes on. Until pin_turn_end() the
 * thread is not cancelled, and is not ended by SIGPIPE or SIGXFSZ. Async-signal-safe;
 * errno is left alone.
 */
bool pin_turn_take(struct pin_turn *turn, const struct pin_occasion *occasion);

/* Whether another thread has taken the turn that this one had. */
bool pin_turn_is_lost(void);

/* On the same occasion. After the last there is no turn any more. */
void pin_turn_end(struct pin_turn *turn, const struct pin_occasion *occasion);

#endif
