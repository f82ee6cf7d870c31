/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is true of the pool as a whole: whether it serves at all, what it has
 * counted, what it has pinned, and when there is news of it.
 */
#ifndef PIN_POOL_H
#define PIN_POOL_H

#include "allocator/base.h"
#include "regpool/lane.h"

#include <stdatomic.h>

/* Why a request went to libibverbs; the text is in pool.c, for the report. */
enum pin_reason {
	PIN_SERVED,
	PIN_FOREIGN,	/* not in the heap */
	PIN_SPLIT,	/* in the heap, but not all of it */
	PIN_REPLACED,	/* in heap whose pages the program has replaced itself */
	PIN_IOVA,	/* device address differs from the address, or no length */
	PIN_RIGHTS,	/* rights that the memory regions do not have */
	PIN_UNSOUND,	/* rights that no memory region can have */
	PIN_UNPINNED,	/* it could not be pinned */
	PIN_NO_ROOM,	/* out of proxies */
	PIN_UNSEEN,	/* in a protection domain that was not seen when it was made */
	PIN_DMABUF,	/* a dma-buf */
	PIN_OFF,	/* PINALLOC_REGISTER=off or PINALLOC_RESTRICT */
	PIN_FORK_GUARD, /* fork protection needs DONTFORK, which the heap must not get */
	PIN_CHILD,	/* in a forked child */
	PIN_REASONS
};
extern const char *const pin_reason_names[PIN_REASONS];

struct pin_requests {
	_Atomic uint64_t by_reason[PIN_REASONS];
} PIN_LANE_ALIGNED;

/* Every figure is monotonic but `pinned` and `registered`. */
struct pin_pool {
	/* PIN_SERVED while registration works, else why it does not. */
	_Atomic int off;
	struct pin_requests requests[PIN_LANES];
	_Atomic uint64_t created; /* real registrations of heap memory */
	_Atomic uint64_t destroyed;
	_Atomic uint64_t refused; /* those that failed */
	_Atomic uint64_t evicted; /* memory regions deregistered to make room */
	_Atomic uint64_t ns;	  /* time inside real registrations of heap memory */
	_Atomic size_t pinned;	  /* bytes of the heap, each once */
	_Atomic size_t pinned_peak;
	_Atomic size_t registered; /* bytes in memory regions, once for each that has them */
	_Atomic size_t registered_peak;
};
extern struct pin_pool pin_pool;

/* Once, from the constructor. `enabled` is false outside PINALLOC_RESTRICT. */
void pin_pool_init(bool enabled);

/* Stops serving, for good. Async-signal-safe. */
void pin_pool_stop(enum pin_reason why);

static inline enum pin_reason pin_pool_off(void)
{
	return (enum pin_reason)atomic_load_explicit(&pin_pool.off, memory_order_relaxed);
}

static inline void pin_pool_count(enum pin_reason reason)
{
	atomic_fetch_add_explicit(&pin_pool.requests[pin_lane()].by_reason[reason], 1,
				  memory_order_relaxed);
}

/*
 * There may be something to register ahead: a request was registered, the heap has grown.
 * Lock-free, never allocates: also who is told that the heap grows.
 */
void pin_pool_changed(void);

/* How often that was so. */
uint32_t pin_pool_changes(void);

/* Sleeps until that is no longer `seen`, as pin_os_wait_ms(). */
void pin_pool_await_change(uint32_t seen, uint64_t ms);

/* Requests counted under a reason so far. */
uint64_t pin_pool_requests(enum pin_reason reason);

/* Lifts `peak` to the level. */
void pin_level_peak(_Atomic size_t *level, _Atomic size_t *peak);

/* Requests that went to libibverbs, all reasons together. */
uint64_t pin_pool_passed(void);

#endif
