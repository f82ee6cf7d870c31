/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * State of the whole library: whether registration works, its counters, how much is registered,
 * and a change counter that the registrar sleeps on.
 */
#pragma once

#include "allocator/base.h"

#include <errno.h>
#include <stdatomic.h>

/*
 * Counters that every registration changes have one copy for each lane, on a cache line of its
 * own. Such a lane is a thread's, not a processor's as in allocator/lanes.h: the first 64 that
 * register have one each, and write to no line in common. The value of a counter is the sum
 * over all lanes that threads have.
 */
#define PIN_LANES 64u

#define PIN_LANE_ALIGNED __attribute__((aligned(64)))

/* Internal: the thread's lane + 1, or 0 if it has none yet. */
extern __thread unsigned pin_lane_own __attribute__((tls_model("initial-exec")));

/* Internal: assigns a lane to the calling thread and returns it. */
unsigned pin_lane_assign(void);

/* The calling thread's lane, less than pin_lanes() from then on. Lock-free. */
static inline unsigned pin_lane(void)
{
	return PIN_LIKELY(pin_lane_own) ? pin_lane_own - 1 : pin_lane_assign();
}

/* How many lanes threads have. What a thread counts is in one of them. */
unsigned pin_lanes(void);

/*
 * Why a request went to libibverbs, with the texts of the report. SERVED: it did not, or, of
 * all registration, nothing keeps it from working. SHARED: the caller or the adapter keeps MRs
 * by key. NO_ROOM: for another proxy, or an access set. UNSEEN: the protection domain's
 * allocation was not seen. EXTENDED: as ibv_reg_mr_ex() takes. OFF: by PINALLOC_REGISTER or
 * PINALLOC_PROGRAMS. FORK_GUARD: fork protection would keep the heap from children (fork.h).
 */
#define PIN_FOR_EACH_REASON(X)                                  \
	X(SERVED, "served")                                     \
	X(FOREIGN, "not heap memory")                           \
	X(SPLIT, "not all of it heap memory")                   \
	X(REPLACED, "pages replaced by the program")            \
	X(UNWATCHED, "not watched, with PINALLOC_WATCH=strict") \
	X(IOVA, "device address differs, or empty")             \
	X(RIGHTS, "rights beyond PINALLOC_ACCESS")              \
	X(UNSOUND, "remote writing without local")              \
	X(SHARED, "key in use, and has to be unique")           \
	X(UNPINNED, "could not be pinned")                      \
	X(PROTECTED, "a page that is protected")                \
	X(NO_ROOM, "table full")                                \
	X(UNSEEN, "unknown protection domain")                  \
	X(DMABUF, "dma-buf")                                    \
	X(EXTENDED, "more than address and rights")             \
	X(OFF, "registration is off")                           \
	X(FORK_GUARD, "fork protection without copy-on-fork")   \
	X(CHILD, "in a forked child")

#define REASON(name, text) PIN_##name,
enum pin_reason { PIN_FOR_EACH_REASON(REASON) PIN_REASONS };
#undef REASON
extern const char *const pin_reason_names[PIN_REASONS];

struct pin_access_set;

struct pin_requests {
	_Atomic uint64_t by_reason[PIN_REASONS];
	/*
	 * The user that a thread of this lane was the last to give back, and where: two words,
	 * that may be of two.
	 */
	_Atomic uint32_t *_Atomic put;
	struct pin_access_set *_Atomic put_in;
} PIN_LANE_ALIGNED;

/* All counters only grow, except `registered`. */
struct pin_state {
	/* PIN_SERVED while registration works, otherwise why it does not. */
	_Atomic int off;
	struct pin_requests requests[PIN_LANES];
	_Atomic uint64_t created; /* real registrations of heap memory */
	_Atomic uint64_t ahead;	  /* those that no request waited for */
	_Atomic uint64_t destroyed;
	_Atomic uint64_t refused;  /* real registrations that failed */
	_Atomic uint64_t evicted;  /* memory regions deregistered to make room */
	_Atomic uint64_t ns;	   /* nanoseconds in real registrations of heap memory */
	_Atomic size_t registered; /* bytes, summed over all memory regions */
	_Atomic size_t registered_peak;
	_Atomic size_t pinned, pinned_peak; /* bytes of pages that memory regions have */
};
extern struct pin_state pin_state;

/*
 * Called once, from the constructor. `enabled` is false if PINALLOC_PROGRAMS excludes this
 * program: then nothing is watched either.
 */
void pin_state_init(bool enabled);

/* Stops serving requests, permanently. Async-signal-safe. */
void pin_state_stop(enum pin_reason why);

static inline enum pin_reason pin_state_off(void)
{
	return (enum pin_reason)atomic_load_explicit(&pin_state.off, memory_order_relaxed);
}

static inline void pin_state_count(enum pin_reason reason)
{
	atomic_fetch_add_explicit(&pin_state.requests[pin_lane()].by_reason[reason], 1,
				  memory_order_relaxed);
}

/*
 * Wakes the registrar: memory was taken that nobody had touched, or a request was registered,
 * so there may be something to register ahead. Lock-free, never allocates: also called inside
 * malloc.
 */
void pin_state_changed(void);

/* How often pin_state_changed() was called. */
uint32_t pin_state_changes(void);

/*
 * Sleeps until pin_state_changes() is no longer `seen`, or `ms` milliseconds have passed
 * (UINT64_MAX: no limit). May wake early.
 */
void pin_state_await_change(uint32_t seen, uint64_t ms);

/* What functions return for a reason: 0 for PIN_SERVED. */
static inline int pin_state_error(enum pin_reason reason)
{
	return reason == PIN_SERVED    ? 0
	       : reason == PIN_RIGHTS  ? -EACCES
	       : reason == PIN_UNSOUND ? -EINVAL
				       : -ENOMEM;
}

/* Number of requests counted under a reason. */
uint64_t pin_state_requests(enum pin_reason reason);

/* Raises `peak` to the current value of `level`, if it is lower. */
void pin_state_update_peak(_Atomic size_t *level, _Atomic size_t *peak);

/* Number of requests that went to libibverbs, for any reason. */
uint64_t pin_state_passed(void);
