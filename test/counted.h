/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An adapter, in front of the stand-in for libibverbs, that makes resident what it pins, as the
 * kernel does, and counts the library's memory regions over each page of the heap.
 */
#ifndef COUNTED_H
#define COUNTED_H

#include "allocator/base.h"

/* After fake_verbs_install(). The kernel keeps memory from then on (fake-kernel.h). */
void counted_install(void);

/* The adapter loses an MR, as with its context. */
struct ibv_mr;
int counted_dereg(struct ibv_mr *mr);

/* So many of them cannot be deregistered, by this thread. */
extern _Thread_local unsigned counted_denials;

/*
 * Whether what the library has accounted for is what the adapter has: bytes of all memory
 * regions, and pages that have any. Only at rest.
 */
bool counted_is_balanced(void);

#endif
