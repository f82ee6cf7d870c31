/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which pages of the process are in memory, and in which page frames. All functions are
 * thread-safe, never allocate, and preserve errno.
 */
#pragma once

#include "allocator/base.h"

/*
 * Counts which pages are in memory, of n_runs runs of n_pages each, one behind the other from
 * the page that contains addr. If /proc/self/pagemap can be read, pages that this process does
 * not have to itself are left out: the kernel's zero page, which reading alone maps, and pages
 * shared with a child, because pinning these takes memory. Returns false if the kernel does not
 * say.
 */
bool pin_resident_count(uintptr_t addr, size_t n_pages, size_t n_runs, uint32_t *counts);

/*
 * Bytes in memory of the heap's ordinary pages, or of those that are fixed (span.h), which come
 * from the system's pool of huge ones; -1 if the kernel does not say.
 */
int64_t pin_resident_heap(bool is_fixed);

/*
 * Sets n_bytes to zero. Of 1 MiB and more it writes only what is not zero, so that pages which
 * nobody has touched get no memory; of 32 MiB and more it does not look at those either, unless
 * the kernel does not say which they are.
 */
void pin_resident_clear(void *addr, size_t n_bytes);
