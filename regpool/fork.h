/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork() and a pinned heap. After ibv_fork_init() libibverbs marks every registered page
 * MADV_DONTFORK; if it marked the heap, a child would have none. Kernels since 5.12 instead
 * copy pinned pages for the child at fork(). libibverbs reports that as IBV_FORK_UNNEEDED, but
 * before rdma-core 51 its ibv_fork_init() marks the pages nevertheless.
 *
 * Copying takes time and memory in proportion to what is pinned. So a fork handler deregisters
 * what has no users first, unless that takes longer. It is registered again when it is asked
 * for, or ahead when it is not shared with a child any more.
 */
#pragma once

#include "allocator/base.h"

#include <stdatomic.h>

/*
 * ibv_fork_init(3). Does nothing if the kernel copies pinned pages. Otherwise calls the real
 * one, and the heap is not registered: a working child matters more than speed. Returns 0 or an
 * errno value.
 */
int pin_fork_init(void);

/* Whether the kernel copies pinned pages. */
bool pin_fork_kernel_copies(void);

/*
 * Installs the fork handlers, which stop registration in children, as late as preload/init.c
 * says. Idempotent. Thread-safe.
 */
void pin_fork_handle(void);

/* Call before heap memory is registered. Checks whether fork protection is on already. */
void pin_fork_prepare(void);

/* How many threads are in fork(): nothing is registered ahead, as it would be copied. */
extern _Atomic unsigned pin_forks_running;
