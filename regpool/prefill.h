/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PINALLOC_PREALLOC: makes part of the heap resident and registers it before the program first
 * communicates.
 */
#ifndef PIN_PREFILL_H
#define PIN_PREFILL_H

#include "regpool/registry.h"

/*
 * Sets the function that allocates a free range of the heap: it returns the address of
 * `n_bytes` in one piece, or NULL. Called once, from the constructor.
 */
void pin_prefill_init(char *(*make)(size_t n_bytes));

/*
 * Call when an access set was armed. The first time, allocates the memory and touches it with
 * several threads, on the memory node of the caller. Each time, registers it. Logs if there is
 * no room. Must not be called from inside malloc.
 */
void pin_prefill(struct pin_domain *domain, struct pin_access_set *set);

#endif
