/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A lock that most only try, as what it is for can also be done in another way. Who does wait
 * sleeps: where more threads wait than there are processors, and each looks again by itself,
 * they keep the one that has the lock from running.
 *
 * Whoever has it waits for nothing that one who waits may hold. All functions are thread-safe,
 * never allocate, and leave errno alone.
 */
#ifndef PIN_FLAG_H
#define PIN_FLAG_H

#include "allocator/base.h"
#include "allocator/locks.h"
#include "allocator/os.h"

#include <stdatomic.h>

/* All 0: free. */
struct pin_flag {
	_Atomic uint32_t state;
};

enum { PIN_FLAG_FREE, PIN_FLAG_TAKEN, PIN_FLAG_AWAITED };

static inline bool pin_flag_try(struct pin_flag *flag)
{
	uint32_t free = PIN_FLAG_FREE;

	pin_locks_count();
	if (PIN_LIKELY(atomic_compare_exchange_strong_explicit(
		    &flag->state, &free, PIN_FLAG_TAKEN, memory_order_acquire,
		    memory_order_relaxed)))
		return true;
	pin_locks_uncount();
	return false;
}

/* Wakes one of those that wait: who comes meanwhile may be faster, and it sleeps again. */
static inline void pin_flag_drop(struct pin_flag *flag)
{
	if (PIN_UNLIKELY(atomic_exchange_explicit(&flag->state, PIN_FLAG_FREE,
						  memory_order_release) == PIN_FLAG_AWAITED))
		pin_os_wake_one(&flag->state);
	pin_locks_uncount();
}

/* It stays awaited for whoever gets it so: there may be others. */
static inline void pin_flag_wait(struct pin_flag *flag)
{
	if (pin_flag_try(flag))
		return;
	pin_locks_count();
	while (atomic_exchange_explicit(&flag->state, PIN_FLAG_AWAITED, memory_order_acquire) !=
	       PIN_FLAG_FREE)
		pin_os_wait(&flag->state, PIN_FLAG_AWAITED);
}

#endif
