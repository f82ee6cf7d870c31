/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What fork() means for a pinned heap. With ibv_fork_init() in force libibverbs
 * marks every registered page MADV_DONTFORK; done to the heap, a child has none.
 * Kernels since 5.12 copy pinned pages for the child at fork() instead, and
 * libibverbs reports that as IBV_FORK_UNNEEDED, but before rdma-core 52 its
 * ibv_fork_init() marks the pages all the same.
 */
#ifndef PIN_FORK_H
#define PIN_FORK_H

#include "allocator/base.h"

/*
 * ibv_fork_init(): nothing where the kernel copies; else the real one, after
 * which nothing of the heap is registered: a child that works is worth more than speed.
 * Returns 0 or an errno value.
 */
int pin_fork_init(void);

/*
 * ibv_dontfork_range() and ibv_dofork_range(), through which libibverbs marks
 * what it registers: nothing where the kernel copies. A program that finds
 * ibv_fork_init() with dlsym gets the real one; its children keep the heap, too.
 * Return 0 or -1 and errno.
 */
int pin_fork_mark(void *start, size_t length);
int pin_fork_unmark(void *start, size_t length);

/*
 * Before anything of the heap is registered: sees whether fork protection is already
 * on, and makes a forked child leave everything alone. Idempotent.
 */
void pin_fork_prepare(void);

#endif
