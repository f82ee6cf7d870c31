/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which pages of the heap are huge pages, as PINALLOC_HUGEPAGE says. With "auto" all
 * addresses from PIN_HUGE_FROM on are, so that huge pages add only one kernel mapping.
 */
#ifndef PIN_HUGE_H
#define PIN_HUGE_H

#include "allocator/base.h"

/* With "auto" the first part of the heap has small pages: most programs use no more. */
#define PIN_HUGE_FROM (32 * PIN_MIB)

/*
 * Makes [addr, addr + n_bytes) of the reserve, both multiples of PIN_GRANULE and not used
 * yet, readable and writable. Returns 0; -ENOMEM if there is no memory; -EEXIST if another
 * mapping of the process is there, so that the heap must never use these addresses.
 * Thread-safe.
 */
int pin_huge_commit(char *addr, size_t n_bytes);

#endif
