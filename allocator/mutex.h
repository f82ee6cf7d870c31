/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A lock that is held for some microseconds at most, or a try-lock. Who waits looks again for
 * about as long, and then sleeps in the kernel: if more threads waited than there are
 * processors, and each polled, they would keep the holder from running.
 *
 * A holder must not wait for anything that a waiter may hold. All functions are thread-safe,
 * never allocate, and preserve errno.
 */
#ifndef PIN_MUTEX_H
#define PIN_MUTEX_H

#include "allocator/base.h"
#include "allocator/log.h"
#include "allocator/os.h"

#include <stdatomic.h>

/* Zero-initialised: unlocked. */
struct pin_mutex {
	_Atomic uint32_t state;
};

enum { PIN_MUTEX_FREE, PIN_MUTEX_TAKEN, PIN_MUTEX_AWAITED };

#ifdef PIN_DEBUG
/* How many of these locks the calling thread holds. */
__attribute__((weak)) __thread int pin_n_held;
#define pin_count_held(n) (pin_n_held += (n))
#else
#define pin_n_held	  0
#define pin_count_held(n) ((void)0)
#endif
#define pin_assert_held(mutex) PIN_ASSERT(pin_n_held &&pin_mutex_is_taken(mutex))

static inline bool pin_mutex_trylock(struct pin_mutex *mutex)
{
	uint32_t free = PIN_MUTEX_FREE;
	bool taken = atomic_compare_exchange_strong_explicit(
		&mutex->state, &free, PIN_MUTEX_TAKEN, memory_order_acquire,
		memory_order_relaxed);

	pin_count_held(taken);
	return PIN_LIKELY(taken);
}

static inline bool pin_mutex_is_taken(const struct pin_mutex *mutex)
{
	return atomic_load_explicit(&mutex->state, memory_order_relaxed) != PIN_MUTEX_FREE;
}

/* Wakes one waiter. If another thread takes the lock first, that waiter sleeps again. */
static inline void pin_mutex_unlock(struct pin_mutex *mutex)
{
	uint32_t was = atomic_exchange_explicit(&mutex->state, PIN_MUTEX_FREE,
						memory_order_release);

	pin_count_held(-1);
	if (PIN_UNLIKELY(was == PIN_MUTEX_AWAITED))
		pin_os_wake_one(&mutex->state);
}

#define PIN_MUTEX_LOOKS 100

static inline void pin_mutex_relax(void)
{
#if defined __x86_64__ || defined __i386__
	__builtin_ia32_pause();
#elif defined __aarch64__
	__asm__ volatile("yield");
#endif
}

/*
 * A waiter leaves the state at PIN_MUTEX_AWAITED when it gets the lock: there may be others.
 */
static inline void pin_mutex_lock(struct pin_mutex *mutex)
{
	for (int i = 0; i < PIN_MUTEX_LOOKS; i++) {
		if (atomic_load_explicit(&mutex->state, memory_order_relaxed) ==
			    PIN_MUTEX_FREE &&
		    pin_mutex_trylock(mutex))
			return;
		pin_mutex_relax();
	}
	while (atomic_exchange_explicit(&mutex->state, PIN_MUTEX_AWAITED,
					memory_order_acquire) != PIN_MUTEX_FREE)
		pin_os_wait(&mutex->state, PIN_MUTEX_AWAITED);
	pin_count_held(1);
}

#endif
