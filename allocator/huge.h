/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which pages of the heap are huge, as PINALLOC_HUGEPAGE says. A heap that grows large
 * has them from an address on upwards, so that they make no more kernel mappings.
 */
#ifndef PIN_HUGE_H
#define PIN_HUGE_H

#include "allocator/base.h"

/* With "auto", a heap up to this has small pages: most programs stay below it. */
#define PIN_HUGE_FROM (32 * PIN_MIB)

/*
 * Commits the next piece of the heap: multiples of PIN_GRANULE of the reserve that nobody
 * has used. Returns 0; -ENOMEM; -EEXIST when it must never be used. Thread-safe.
 */
int pin_huge_commit(char *addr, size_t n_bytes);

#endif
