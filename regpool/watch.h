/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Watches for pages of the heap that the program itself replaces behind malloc:
 * madvise(MADV_DONTNEED), munmap(), mmap(MAP_FIXED) or mremap() on a block, through
 * libc or not. Keys then stand for the old pages. The kernel tells
 * through userfaultfd(2), before the call returns; no page fault is taken over.
 */
#ifndef PIN_WATCH_H
#define PIN_WATCH_H

#include "regpool/granule.h"

#include <stdatomic.h>

/*
 * Begins, once, for the whole heap and all it will grow by. The function is told of each piece
 * of any mapping, in a thread of its own, while the program's call waits. Where the kernel
 * cannot (before 5.11, not on x86-64, or forbidden by seccomp) nothing is watched. Not from
 * inside malloc.
 */
void pin_watch_start(void (*tell)(uintptr_t start, size_t length));

/*
 * Before a range is registered: begins for it alone, where the heap is of hugetlb pages and
 * cannot be watched before it grows. Until then it is not registered, so that what is replaced
 * needs no notice.
 */
void pin_watch_range(struct pin_range range);

/*
 * In a forked child: gives up its copy of the file descriptor, or the parent's calls
 * would wait for somebody to read it after the parent has closed its own. Leaves the
 * parent's watch alone. Async-signal-safe.
 */
void pin_watch_leave(void);

/* Internal: not 0 from before such a call returns until keys there are withdrawn. */
extern _Atomic uint32_t pin_watch_pending;
void pin_watch_wait(void);

static inline bool pin_watch_is_pending(void)
{
	return atomic_load_explicit(&pin_watch_pending, memory_order_acquire);
}

/* Before keys are looked up: what was replaced before now is known after it. */
static inline void pin_watch_settle(void)
{
	if (PIN_UNLIKELY(pin_watch_is_pending()))
		pin_watch_wait();
}

#endif
