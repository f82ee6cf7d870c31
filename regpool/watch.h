/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Watches for pages of the heap that the program itself replaces behind malloc:
 * madvise(MADV_DONTNEED), munmap(), mmap(MAP_FIXED) or mremap() on a block, through
 * libc or not. The region's keys then stand for the old pages. The kernel tells
 * through userfaultfd(2), before the call returns; no page fault is taken over.
 */
#ifndef PIN_WATCH_H
#define PIN_WATCH_H

#include "allocator/region.h"

#include <stdatomic.h>

/*
 * Begins, once, for the whole heap and all it will grow by. Where the kernel cannot
 * (before 5.11, not on x86-64, or forbidden by seccomp) nothing is watched. Not from
 * inside malloc.
 */
void pin_watch_start(void);

/*
 * Before a region is registered: begins for it alone, where the heap is of hugetlb pages
 * and cannot be watched before it grows. Until then it is not registered, so that what is
 * replaced needs no notice.
 */
void pin_watch_region(const struct pin_region *region);

/*
 * In a forked child: gives up its copy of the file descriptor, or the parent's calls
 * would wait for somebody to read it after the parent has closed its own. Leaves the
 * parent's watch alone. Async-signal-safe.
 */
void pin_watch_leave(void);

/* Internal: not 0 from before such a call returns until its region is withdrawn. */
extern _Atomic uint32_t pin_watch_pending;
void pin_watch_wait(void);

/* Before a region is looked up: what was replaced before now is known after it. */
static inline void pin_watch_settle(void)
{
	if (PIN_UNLIKELY(atomic_load_explicit(&pin_watch_pending, memory_order_acquire)))
		pin_watch_wait();
}

#endif
