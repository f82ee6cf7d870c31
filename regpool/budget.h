/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much may be pinned: PINALLOC_MAX_PINNED and, where the process is held to
 * RLIMIT_MEMLOCK, half of what the program's own registrations leave of it. The other
 * half is for those to come: regions in use cannot be taken back, and must not make
 * fail what would succeed without them. The kernel counts each registration by itself,
 * so a region counts once a protection domain.
 */
#ifndef PIN_BUDGET_H
#define PIN_BUDGET_H

#include "allocator/base.h"

/* Bytes all regions together may pin; SIZE_MAX without a limit. */
size_t pin_budget_limit(void);

/* Takes n_bytes of it, or nothing and false. Lock-free. */
bool pin_budget_take(size_t n_bytes);

void pin_budget_give(size_t n_bytes);

/* Whether n_bytes could be had if `idle` bytes were given back. */
bool pin_budget_could(size_t n_bytes, size_t idle);

#endif
