/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits how much may be pinned. There are two limits:
 *
 * Pinned memory, each page counted once: PINALLOC_MAX_PINNED, by default a share of the
 * machine's memory and of the cgroup's limit. Pinned memory cannot be swapped out, so other
 * memory would have to be, or processes be killed.
 *
 * Registered memory, counted once for each memory region as the kernel does: where
 * RLIMIT_MEMLOCK applies, half of what the program's own registrations leave of it. The other
 * half is for later ones: memory regions in use cannot be evicted, and must not make a request
 * fail that would succeed without this library.
 */
#ifndef PIN_BUDGET_H
#define PIN_BUDGET_H

#include "regpool/granule.h"

/* Bytes that may be registered under RLIMIT_MEMLOCK; SIZE_MAX if that does not apply. */
size_t pin_budget_locked_limit(void);

/* Bytes that may be pinned. */
size_t pin_budget_pinned_limit(void);

/* Counts a memory region over the range, if both limits allow it. Lock-free. */
bool pin_budget_reserve(struct pin_range range);

void pin_budget_release(struct pin_range range);

/* Whether n_bytes would fit if `idle` bytes of memory regions were deregistered. */
bool pin_budget_would_fit(size_t n_bytes, size_t idle);

#endif
