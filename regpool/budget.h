/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much may be pinned. Two things count, and each has a limit of its own:
 *
 * - What is pinned, each page once: PINALLOC_MAX_PINNED, by default a share of the machine's
 *   memory and of what the process's cgroup may have. Pinned memory cannot be swapped out, so
 *   that others would have to go, or be killed.
 * - What is registered, as the kernel counts it, once for each memory region: where the process
 *   is held to RLIMIT_MEMLOCK, half of what the program's own registrations leave of it. The
 *   other half is for those to come: regions in use cannot be taken back, and must not make
 *   fail what would succeed without them.
 */
#ifndef PIN_BUDGET_H
#define PIN_BUDGET_H

#include "regpool/granule.h"

/* Bytes that may be registered, of RLIMIT_MEMLOCK; SIZE_MAX without that limit. */
size_t pin_budget_locked_limit(void);

/* Bytes that may be pinned. */
size_t pin_budget_pinned_limit(void);

/* Counts a memory region over the range, or nothing and returns false. Lock-free. */
bool pin_budget_take(struct pin_range range);

void pin_budget_give(struct pin_range range);

/* Whether n_bytes could be had if `idle` bytes of memory regions were given back. */
bool pin_budget_could(size_t n_bytes, size_t idle);

#endif
