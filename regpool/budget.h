/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits how much may be pinned. There are two limits of the process:
 *
 * Pinned memory, each page counted once: PINALLOC_MAX_PINNED, by default a share of the
 * machine's memory and of the cgroup's limit, divided by the ranks on the node. Pinned memory
 * cannot be swapped out, so other memory would have to be, or processes be killed.
 *
 * Registered memory, counted once for each memory region as the kernel does: where
 * RLIMIT_MEMLOCK applies, half of what the program's own registrations leave of it. The other
 * half is for later ones: memory regions in use cannot be evicted, and must not make a request
 * fail that would succeed without this library.
 */
#ifndef PIN_BUDGET_H
#define PIN_BUDGET_H

#include "regpool/granule.h"

#include <errno.h>
#include <stdatomic.h>

/*
 * A memory region that is used for less than all of it keeps the rest locked, too. Where locked
 * memory is limited, requests are not served if that would come to more than an eighth of what
 * the program's own registrations leave: so many small buffers do not use up the limit.
 */
struct pin_usage {
	_Atomic size_t asked; /* bytes of the requests that are counted here */
	size_t length;	      /* of the memory region, in bytes */
};

/* How many bytes may be kept; SIZE_MAX without a limit on locked memory. See above. */
extern _Atomic size_t pin_budget_spare __attribute__((visibility("hidden")));

/* Whether requests are counted. */
static inline bool pin_budget_is_tight(void)
{
	return atomic_load_explicit(&pin_budget_spare, memory_order_relaxed) != SIZE_MAX;
}

/*
 * Whether a registration that failed with this errno may have lacked locked memory, which all
 * adapters share. Otherwise it is its adapter that has no room.
 */
static inline bool pin_budget_may_lack(int error)
{
	return error == ENOMEM && pin_budget_is_tight();
}

/* Counts a request, if it may be served. Lock-free, like the next two. */
bool pin_budget_use(struct pin_usage *usage, size_t n_bytes);

/* The request has ended. */
void pin_budget_unuse(struct pin_usage *usage, size_t n_bytes);

/* The memory region has ended, whatever is counted. */
void pin_budget_end_usage(struct pin_usage *usage);

/*
 * Whether a request that is the first for its memory region could be served, were that as small
 * as one can be.
 */
bool pin_budget_may_use(size_t n_bytes);

/* Whether more is registered or pinned than the limits allow now. */
bool pin_budget_is_exceeded(void);

/* Bytes that may be registered under RLIMIT_MEMLOCK; SIZE_MAX if that does not apply. */
size_t pin_budget_locked_limit(void);

/* Bytes that may be pinned. */
size_t pin_budget_pinned_limit(void);

/* The lower of the two. */
size_t pin_budget_lowest_limit(void);

/* Counts a memory region over the range, if both limits allow it. Lock-free. */
bool pin_budget_reserve(struct pin_range range);

void pin_budget_release(struct pin_range range);

/* Whether n_bytes would fit if `idle` bytes of memory regions were deregistered. */
bool pin_budget_would_fit(size_t n_bytes, size_t idle);

#endif
