/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many bytes the program has allocated and not freed, and the highest such sum so far.
 *
 * jemalloc counts the bytes that each thread allocates and frees, and looks at these counters
 * every 64 KiB (its thread events). The sum is updated from there, so the fast paths pay
 * nothing, and only when a thread's balance has changed by more than PIN_LIVE_SLACK. So the
 * sum is off by less than that and 64 KiB for each thread, and exact for threads that have
 * ended.
 *
 * A block counts with its usable size (malloc_usable_size), a large block with the size that
 * was requested (large.h). While allocations are sampled, jemalloc passes on the requested
 * size only of those it picks; other large blocks count as rounded up.
 */
#ifndef PIN_LIVE_H
#define PIN_LIVE_H

#include "allocator/base.h"

#define PIN_LIVE_SLACK ((int64_t)(32 * PIN_KIB))

/* An allocation of at least this many bytes always causes a thread event. */
#define PIN_LIVE_EVENT ((int64_t)(64 * PIN_KIB))

struct pin_live_peak {
	size_t bytes;
	uint64_t ns; /* the time, by pin_os_now_ns() */
};

enum pin_live_side { PIN_LIVE_FREED, PIN_LIVE_ALLOCATED, PIN_LIVE_SIDES };

/* Internal: the counters and corrections of the calling thread. */
struct pin_live_thread {
	const uint64_t *counters[PIN_LIVE_SIDES]; /* in jemalloc; NULL until they are set */
	int64_t corrections;			  /* sum of pin_live_correct() */
	int64_t expected_free;
	uint64_t expected_at;  /* valid while this is the count of bytes freed */
	int64_t expected_copy; /* see pin_live_expect_copy() */
	int64_t published;     /* its balance when it last updated the sum */
};
extern __thread struct pin_live_thread pin_live_thread
	__attribute__((tls_model("initial-exec")));
void pin_live_publish(int64_t held);

/* Bytes that the calling thread has allocated, or freed. */
static inline uint64_t pin_live_count(enum pin_live_side side)
{
	const uint64_t *counter = pin_live_thread.counters[side];

	return counter ? *counter : 0;
}

/* The calling thread's balance: bytes allocated minus bytes freed, corrected. */
static inline int64_t pin_live_held(void)
{
	return pin_live_thread.corrections + (int64_t)pin_live_count(PIN_LIVE_ALLOCATED) -
	       (int64_t)pin_live_count(PIN_LIVE_FREED);
}

/* Sets where jemalloc counts the calling thread's bytes. */
static inline void pin_live_set_counters(const uint64_t *allocated, const uint64_t *freed)
{
	pin_live_thread.counters[PIN_LIVE_ALLOCATED] = allocated;
	pin_live_thread.counters[PIN_LIVE_FREED] = freed;
}

/* Whether pin_live_set_counters() has been called in this thread. */
static inline bool pin_live_has_counters(void)
{
	return pin_live_thread.counters[PIN_LIVE_ALLOCATED];
}

/* Updates the sum after an event of the calling thread that is not quiet. */
void pin_live_count_event(void);

/* Whether an event of the calling thread has nothing to update, which is the usual case. */
static inline bool pin_live_event_is_quiet(void)
{
	const struct pin_live_thread *thread = &pin_live_thread;
	int64_t change = pin_live_held() - thread->published;

	return change <= PIN_LIVE_SLACK && change >= -PIN_LIVE_SLACK &&
	       !(thread->expected_free | thread->expected_copy);
}

/* Adds n_bytes, which may be negative, to the calling thread's balance. */
static inline void pin_live_correct(int64_t n_bytes)
{
	pin_live_thread.corrections += n_bytes;
}

/*
 * jemalloc is about to count n_bytes as freed, but an event comes before that. Until the
 * thread's count of bytes freed changes, they are subtracted from its balance.
 */
static inline void pin_live_expect_free(int64_t n_bytes)
{
	pin_live_thread.expected_free = n_bytes;
	pin_live_thread.expected_at = pin_live_count(PIN_LIVE_FREED);
}

/*
 * realloc has copied a block to one of n_bytes, and the calling thread's next event will
 * count the new one. Samples change before that event: the old block would be missing from
 * them at the peak, when the program has both. So before samples change,
 * pin_live_count_copy() counts the new block. Only for sizes that are sure to cause an event.
 */
static inline void pin_live_expect_copy(int64_t n_bytes)
{
	pin_live_thread.expected_copy = n_bytes >= PIN_LIVE_EVENT ? n_bytes : 0;
}

static inline void pin_live_count_copy(void)
{
	struct pin_live_thread *thread = &pin_live_thread;

	if (PIN_LIKELY(!thread->expected_copy))
		return;
	pin_live_publish(pin_live_held() - thread->expected_free + thread->expected_copy);
	thread->expected_copy = 0;
}

/* Updates the sum with all the calling thread has done. Called when it ends. */
static inline void pin_live_end_thread(void)
{
	pin_live_publish(pin_live_held());
}

/*
 * Bytes in blocks that the program has allocated, including the latest ones of the calling
 * thread. Lock-free, async-signal-safe.
 */
size_t pin_live_now(void);

/* The highest value of pin_live_now() so far, and its time. Lock-free, async-signal-safe. */
struct pin_live_peak pin_live_peak(void);

#endif
