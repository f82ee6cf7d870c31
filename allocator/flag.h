/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A lock for what can also be done in another way: whoever does not get it at once takes that,
 * so nobody ever waits but fork(), whose child would find it taken for ever.
 */
#ifndef PIN_FLAG_H
#define PIN_FLAG_H

#include "allocator/base.h"
#include "allocator/locks.h"
#include "allocator/os.h"

#include <sched.h>
#include <stdatomic.h>

static inline bool pin_flag_try(atomic_flag *flag)
{
	pin_locks_count();
	if (PIN_LIKELY(!atomic_flag_test_and_set_explicit(flag, memory_order_acquire)))
		return true;
	pin_locks_uncount();
	return false;
}

static inline void pin_flag_drop(atomic_flag *flag)
{
	atomic_flag_clear_explicit(flag, memory_order_release);
	pin_locks_uncount();
}

/*
 * For fork(). Who has the flag waits for nothing that the caller may hold, but maybe for its
 * processor: to an ordinary thread a real-time one that only yields does not leave it.
 */
static inline void pin_flag_wait(atomic_flag *flag)
{
	for (int n = 0; !pin_flag_try(flag); n++)
		if (n < 100)
			sched_yield();
		else
			pin_os_sleep_ms(1);
}

#endif
