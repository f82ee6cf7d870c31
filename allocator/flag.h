/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A lock that is held for some microseconds at most, or a try-lock. Who waits looks again for
 * about as long, and then sleeps in the kernel: if more threads waited than there are
 * processors, and each polled, they would keep the holder from running.
 *
 * A holder must not wait for anything that a waiter may hold. All functions are thread-safe,
 * never allocate, and preserve errno.
 */
#ifndef PIN_FLAG_H
#define PIN_FLAG_H

#include "allocator/base.h"
#include "allocator/os.h"

#include <stdatomic.h>

/* Zero-initialised: unlocked. */
struct pin_flag {
	_Atomic uint32_t state;
};

enum { PIN_FLAG_FREE, PIN_FLAG_TAKEN, PIN_FLAG_AWAITED };

static inline bool pin_flag_trylock(struct pin_flag *flag)
{
	uint32_t free = PIN_FLAG_FREE;

	return PIN_LIKELY(atomic_compare_exchange_strong_explicit(
		&flag->state, &free, PIN_FLAG_TAKEN, memory_order_acquire,
		memory_order_relaxed));
}

/* Wakes one waiter. If another thread takes the lock first, that waiter sleeps again. */
static inline void pin_flag_unlock(struct pin_flag *flag)
{
	uint32_t was = atomic_exchange_explicit(&flag->state, PIN_FLAG_FREE,
						memory_order_release);

	if (PIN_UNLIKELY(was == PIN_FLAG_AWAITED))
		pin_os_wake_one(&flag->state);
}

#define PIN_FLAG_LOOKS 100

static inline void pin_flag_relax(void)
{
#if defined __x86_64__ || defined __i386__
	__builtin_ia32_pause();
#elif defined __aarch64__
	__asm__ volatile("yield");
#endif
}

/*
 * A waiter leaves the state at PIN_FLAG_AWAITED when it gets the lock: there may be others.
 */
static inline void pin_flag_lock(struct pin_flag *flag)
{
	for (int i = 0; i < PIN_FLAG_LOOKS; i++) {
		if (atomic_load_explicit(&flag->state, memory_order_relaxed) == PIN_FLAG_FREE &&
		    pin_flag_trylock(flag))
			return;
		pin_flag_relax();
	}
	while (atomic_exchange_explicit(&flag->state, PIN_FLAG_AWAITED, memory_order_acquire) !=
	       PIN_FLAG_FREE)
		pin_os_wait(&flag->state, PIN_FLAG_AWAITED);
}

#endif
