/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which pages of the heap are huge pages, as PINALLOC_HUGEPAGE says: with "system" nothing is
 * advised.
 */
#ifndef PIN_HUGE_H
#define PIN_HUGE_H

#include "allocator/base.h"

/*
 * Makes [addr, addr + n_bytes) of the reserve, both multiples of PIN_GRANULE and not used
 * yet, readable and writable. Returns 0; -ENOMEM if there is no memory; -EEXIST if another
 * mapping of the process is there, so that the heap must never use these addresses.
 * Thread-safe.
 */
int pin_huge_commit(char *addr, size_t n_bytes);

#endif
