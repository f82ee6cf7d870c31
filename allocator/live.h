/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the program holds, and the most it ever held.
 *
 * jemalloc counts the bytes each thread allocates and frees, and looks at these
 * counters every 64 KiB (its thread events). They are taken from there, so that the fast
 * paths cost nothing more, and added up when a thread holds notably more or less than it
 * has told. So the sum is exact but for less than PIN_LIVE_UNTOLD and 64 KiB for each
 * thread; one that ends tells all.
 *
 * A block counts with what it can hold (malloc_usable_size), except that a large one
 * counts with what was asked for: large.h. While allocations are sampled jemalloc
 * passes on what was asked for only of those it picks; the others count as rounded up.
 */
#ifndef PIN_LIVE_H
#define PIN_LIVE_H

#include "allocator/base.h"

#define PIN_LIVE_UNTOLD ((int64_t)(32 * PIN_KIB))

/* An allocation of so much is an event in any case. */
#define PIN_LIVE_EVENT ((int64_t)(64 * PIN_KIB))

struct pin_live_peak {
	size_t bytes;
	uint64_t ns; /* when, by pin_os_now_ns() */
};

enum pin_live_side { PIN_LIVE_FREED, PIN_LIVE_ALLOCATED, PIN_LIVE_SIDES };

/* Internal to the inline functions: the calling thread's. */
struct pin_live_thread {
	const uint64_t *counters[PIN_LIVE_SIDES]; /* in jemalloc; NULL until they are known */
	int64_t corrections;			  /* sum of pin_live_correct() */
	int64_t withheld;
	uint64_t withheld_at; /* as long as so much has been freed */
	int64_t moving;	      /* see pin_live_moving() */
	int64_t told;	      /* what it held when it was added up last */
};
extern __thread struct pin_live_thread pin_live_thread
	__attribute__((tls_model("initial-exec")));
void pin_live_tell(int64_t held);

/* Bytes on one side of the calling thread. */
static inline uint64_t pin_live_count(enum pin_live_side side)
{
	const uint64_t *counter = pin_live_thread.counters[side];

	return counter ? *counter : 0;
}

/* What the calling thread has allocated more than freed. */
static inline int64_t pin_live_held(void)
{
	return pin_live_thread.corrections + (int64_t)pin_live_count(PIN_LIVE_ALLOCATED) -
	       (int64_t)pin_live_count(PIN_LIVE_FREED);
}

/* Where jemalloc counts the calling thread's bytes. */
static inline void pin_live_know(const uint64_t *allocated, const uint64_t *freed)
{
	pin_live_thread.counters[PIN_LIVE_ALLOCATED] = allocated;
	pin_live_thread.counters[PIN_LIVE_FREED] = freed;
}

/* Whether these are known. */
static inline bool pin_live_knows(void)
{
	return pin_live_thread.counters[PIN_LIVE_ALLOCATED];
}

/* Counts what the calling thread has come to, after an event that is not quiet. */
void pin_live_count_event(void);

/*
 * An event of the calling thread. Returns whether that is all there is to it, as it mostly
 * is.
 */
static inline bool pin_live_event_is_quiet(void)
{
	const struct pin_live_thread *thread = &pin_live_thread;
	int64_t change = pin_live_held() - thread->told;

	return change <= PIN_LIVE_UNTOLD && change >= -PIN_LIVE_UNTOLD &&
	       !(thread->withheld | thread->moving);
}

/* The calling thread holds so much more, or less, than its counters say. */
static inline void pin_live_correct(int64_t n_bytes)
{
	pin_live_thread.corrections += n_bytes;
}

/*
 * An event of the calling thread comes too early for so many bytes that are freed next:
 * they are left out, until its count of bytes freed has moved.
 */
static inline void pin_live_withhold(int64_t n_bytes)
{
	pin_live_thread.withheld = n_bytes;
	pin_live_thread.withheld_at = pin_live_count(PIN_LIVE_FREED);
}

/*
 * realloc has moved a block, and the calling thread's next event will count the new one.
 * Samples are changed before that: the old block would be gone from them when the peak is
 * reached that has both, so whoever changes them asks for it first. Only where an event is
 * sure to follow.
 */
static inline void pin_live_moving(int64_t n_bytes)
{
	pin_live_thread.moving = n_bytes >= PIN_LIVE_EVENT ? n_bytes : 0;
}

static inline void pin_live_moved(void)
{
	struct pin_live_thread *thread = &pin_live_thread;

	if (PIN_LIKELY(!thread->moving))
		return;
	pin_live_tell(pin_live_held() - thread->withheld + thread->moving);
	thread->moving = 0;
}

/* The calling thread ends: counts what its last events left. */
static inline void pin_live_thread_ends(void)
{
	pin_live_tell(pin_live_held());
}

/*
 * Bytes in blocks the program holds, the calling thread's last ones included.
 * Lock-free, async-signal-safe.
 */
size_t pin_live_now(void);

/* The most it held until now, and when. Lock-free, async-signal-safe. */
struct pin_live_peak pin_live_peak(void);

#endif
