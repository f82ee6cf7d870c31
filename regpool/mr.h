/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The verbs that register memory: a request is served from memory regions of the heap, or
 * passed to libibverbs unchanged. Called by the interposers and the API in preload/.
 * Thread-safe. Must not be called from inside malloc or a signal handler.
 */
#pragma once

#include "regpool/ibverbs.h"

/*
 * As ibv_reg_mr_iova2(3): returns NULL and sets errno on failure. `caller` is a return address
 * in the library that asks.
 */
struct ibv_mr *pin_mr_register(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       unsigned access, const void *caller);

/* As ibv_reg_mr_ex(3) and ibv_reg_buf_mr(3). EOPNOTSUPP if libibverbs does not have them. */
struct ibv_mr *pin_mr_register_extended(struct ibv_pd *pd, struct ibv_mr_init_attr *attr,
					const void *caller);
struct ibv_mr *pin_mr_register_buffer(struct ibv_pd *pd, struct ibv_buf *buf, void *addr,
				      size_t length, int access, const void *caller);

/*
 * As ibv_dereg_mr(3): returns 0 or an errno value, EINVAL for a proxy that was freed. An MR
 * that is not a proxy is deregistered with the given function; NULL for libibverbs' own.
 */
int pin_mr_deregister_by(struct ibv_mr *mr, int (*dereg_mr)(struct ibv_mr *mr));

static inline int pin_mr_deregister(struct ibv_mr *mr)
{
	return pin_mr_deregister_by(mr, NULL);
}

/*
 * As ibv_rereg_mr(3): returns 0 or an enum ibv_rereg_mr_err_code. If it fails, a proxy keeps
 * its registration. An MR that is not a proxy is changed with the given function; NULL for
 * libibverbs' own.
 */
typedef __typeof__(ibv_rereg_mr) pin_rereg_mr;
int pin_mr_reregister(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		      size_t length, int access, const void *caller, pin_rereg_mr *rereg_mr);

/* Laid out as struct pinalloc_key, so that a look-up writes into that. */
struct pin_mr_key {
	uint32_t lkey, rkey;
	uint64_t start, length;
} __attribute__((may_alias));

/*
 * Gets the keys of [addr, addr + length) in a PD with exactly these IBV_ACCESS_* rights, arming
 * it if necessary. Returns 0; -ENOENT if the range is not heap or pages of it were replaced;
 * -EACCES for rights beyond PINALLOC_ACCESS or those the PD was enabled with; -EINVAL for
 * rights that verbs do not allow; -ENOMEM if it cannot be pinned. Lock-free if the keys were
 * returned before.
 */
int pin_mr_lookup(struct ibv_pd *pd, const void *addr, size_t length, unsigned access,
		  struct pin_mr_key *key);
