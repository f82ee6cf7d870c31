/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A lock that is mostly held for some microseconds, or a try-lock. Who waits looks again for
 * about as long, and then sleeps in the kernel: if more threads waited than there are
 * processors, and each polled, they would keep the holder from running.
 *
 * A holder must not wait for anything that a waiter may hold. All functions are thread-safe,
 * never allocate, and preserve errno.
 */
#pragma once

#include "allocator/base.h"
#include "allocator/log.h"
#include "allocator/os.h"

#include <stdatomic.h>

/*
 * The order of locks: who holds one waits for none of the same or a higher rank, and a fork
 * takes those of the heap from the highest down. Below PIN_RANK_LEAF are locks that are taken
 * inside jemalloc, under its own: so their holders must not call jemalloc, allocate, or walk
 * the stack. Those of regpool/ come before all of the heap, as who holds one may allocate.
 */
enum pin_rank {
	PIN_RANK_MAP,	/* a leaf, with growth */
	PIN_RANK_SITES, /* held while the stack is walked, which takes libunwind's */
	PIN_RANK_LEAF,	/* taken under jemalloc's */
	PIN_RANK_BEGIN, /* held around calls of jemalloc */
	PIN_RANK_START,
	PIN_RANK_LOADER, /* held while the loader's list is read, and what that allocates */
	PIN_RANK_INNER,	 /* of regpool, taken under its others */
	PIN_RANK_OUTER,	 /* of regpool, each alone, or under the next */
	PIN_RANK_DOMAIN, /* held across calls of libibverbs */
};

/* Zero-initialised: unlocked, of the map. */
struct pin_mutex {
	_Atomic uint32_t state;
	enum pin_rank rank;
	const void *holder; /* with PIN_DEBUG: pin_ranks_held of the thread that has it */
};

enum { PIN_MUTEX_FREE, PIN_MUTEX_TAKEN, PIN_MUTEX_AWAITED };

#ifdef PIN_DEBUG
/* A bit for each rank of which the calling thread holds a lock. */
__attribute__((weak)) __thread uint32_t pin_ranks_held;
__attribute__((weak)) _Atomic uint64_t pin_n_locked; /* how many times all threads took one */
#define pin_note_rank(rank) ((void)(pin_ranks_held ^= UINT32_C(1) << (rank)))
#define pin_note_held(mutex, is_held)                                                         \
	((void)(pin_n_locked += is_held), (mutex)->holder = is_held ? &pin_ranks_held : NULL, \
	 pin_note_rank((mutex)->rank))
#define pin_assert_held(mutex)	  PIN_ASSERT((mutex)->holder == &pin_ranks_held)
#define pin_assert_may_wait(rank) PIN_ASSERT(!(pin_ranks_held & ((UINT32_C(2) << (rank)) - 1)))
#else
#define pin_note_rank(rank)	      ((void)0)
#define pin_note_held(mutex, is_held) ((void)0)
#define pin_assert_held(mutex)	      ((void)(mutex))
#define pin_assert_may_wait(rank)     ((void)0)
#endif

static inline bool pin_mutex_trylock(struct pin_mutex *mutex)
{
	uint32_t free = PIN_MUTEX_FREE;
	bool taken = atomic_compare_exchange_strong_explicit(
		&mutex->state, &free, PIN_MUTEX_TAKEN, memory_order_acquire,
		memory_order_relaxed);

	if (PIN_LIKELY(taken))
		pin_note_held(mutex, true);
	return PIN_LIKELY(taken);
}

/* Wakes one waiter. If another thread takes the lock first, that waiter sleeps again. */
static inline void pin_mutex_unlock(struct pin_mutex *mutex)
{
	uint32_t was;

	pin_note_held(mutex, false);
	was = atomic_exchange_explicit(&mutex->state, PIN_MUTEX_FREE, memory_order_release);
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
	pin_assert_may_wait(mutex->rank);
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
	pin_note_held(mutex, true);
}
