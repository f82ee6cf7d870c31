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
 */
#ifndef PIN_BUDGET_H
#define PIN_BUDGET_H

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

#endif
