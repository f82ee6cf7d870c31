/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes calls of the stand-in for libibverbs fail as system calls do (test/inject.c): if this
 * variable is set, each begins with an ioctl on no descriptor, which fails with EBADF unless it
 * is the call that is to fail.
 */
#ifndef INJECT_H
#define INJECT_H

#include <stdbool.h>
#include <stddef.h>

struct ibv_mr;

#define INJECT_ENVIRONMENT "FAKE_VERBS_FAIL"

enum inject_request {
	INJECT_REG_MR = 0x50494e01,
	INJECT_DEREG_MR,
	INJECT_ALLOC_PD,
	INJECT_DEALLOC_PD,
	INJECT_QUERY_DEVICE,
};

/* Whether its keys would let an adapter touch the range. Exported by the stand-in. */
__attribute__((visibility("default"))) bool fake_verbs_reach(const struct ibv_mr *mr,
							     const void *addr, size_t length);

#endif
