/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits how much is registered. There are two limits of the process:
 *
 * PINALLOC_MAX_PINNED, by default a share of the machine's memory and of the cgroup's limit,
 * divided by the ranks on the node. Pinned memory cannot be swapped out, so other memory would
 * have to be, or processes be killed. A page counts once, however many memory regions have it.
 *
 * Where RLIMIT_MEMLOCK applies, half of what the program's own registrations leave of it. A
 * page counts once for each memory region that has it, as the kernel counts it. The
 * other half is for later ones: memory regions in use cannot be evicted, and must not make a
 * request fail that would succeed without this library.
 *
 * What may be registered ahead of requests has an allowance, too:
 *
 * An adapter's room is not known before a call fails for want of it. From then on half of what
 * was registered there may be registered ahead, in all its domains, or half of what is now; and
 * half a byte less or more for each that the program itself registers or deregisters.
 *
 * Over the life of an access set so much may be registered as the heap has, a fifth of it, and
 * three times what requests have waited for, with what these take themselves. So what comes and
 * goes without requests is not registered again and again, whatever makes it go. What a memory
 * region gives way to is paid for by requests that have used a large part of it. With
 * pinalloc_enable(3) it begins anew.
 */
#pragma once

#include "regpool/domains.h"
#include "regpool/granule.h"

/* Bytes that may be registered under RLIMIT_MEMLOCK; SIZE_MAX if that does not apply. */
size_t pin_budget_locked_limit(void);

/* Bytes that may be pinned by PINALLOC_MAX_PINNED. */
size_t pin_budget_pinned_limit(void);

/* The lower of the two. */
size_t pin_budget_limit(void);

/*
 * Whether the limit on locked memory is the lower one, as was last seen: then nothing is
 * registered but what is asked for.
 */
bool pin_budget_is_tight(void);

/*
 * How many bytes are to be deregistered for n_bytes more, if no memory region has their pages,
 * by the limits that pin_budget_limit() has found last.
 */
size_t pin_budget_excess(size_t n_bytes);

/* Counts a memory region over the range, if the limits allow it. Lock-free. */
bool pin_budget_reserve(struct pin_range range);

void pin_budget_release(struct pin_range range);

/* Whether so many bytes of the allowance are left to an access set. */
bool pin_allowance_left(const struct pin_access_set *set, int64_t n_bytes);

/* Whether an adapter has room to register so many bytes ahead, as far as is known. */
bool pin_allowance_has_room(const struct pin_adapter *adapter, size_t n_bytes);

/* A call for this adapter has failed with this errno value, which may be for want of room. */
void pin_allowance_note_error(struct pin_adapter *adapter, int error);

/* The program has registered so many bytes there itself, or deregistered if negative. */
void pin_allowance_note_own(struct pin_adapter *adapter, int64_t n_bytes);
