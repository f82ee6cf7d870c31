/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What becomes of a program's requests: served from memory regions of the heap, or handed to
 * libibverbs as they are. The interposers in preload/ and the API call these.
 * Thread-safe. Not from inside malloc, not async-signal-safe.
 */
#ifndef PIN_MR_H
#define PIN_MR_H

#include "regpool/ibverbs.h"

/* As ibv_reg_mr_iova2(3): NULL and errno on failure. */
struct ibv_mr *pin_mr_register(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       unsigned access);

/* As ibv_dereg_mr(3): 0 or an errno value. EINVAL for a proxy that was freed. */
int pin_mr_deregister(struct ibv_mr *mr);

/* Likewise, but what is no proxy is deregistered by this function. */
int pin_mr_deregister_by(struct ibv_mr *mr, int (*dereg_mr)(struct ibv_mr *mr));

/*
 * As ibv_rereg_mr(3): 0 or an enum ibv_rereg_mr_err_code. When it fails, the old
 * registration of a proxy is as it was.
 */
int pin_mr_reregister(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		      size_t length, int access);

/*
 * The keys of [addr, addr + length) in a PD, arming it if need be. Returns 0,
 * -ENOENT when it is not heap, or pages of it were replaced, -ENOMEM when it cannot be
 * pinned. Lock-free when the keys are there.
 */
int pin_mr_lookup(struct ibv_pd *pd, const void *addr, size_t length, uint32_t *lkey,
		  uint32_t *rkey);

/*
 * Arms a PD with exactly these IBV_ACCESS_* rights. Returns 0, -EINVAL for rights the
 * memory regions cannot have, -EEXIST when it is armed with fewer, -ENOMEM when
 * there is no room or registration is off.
 */
int pin_mr_attach(struct ibv_pd *pd, unsigned access);

#endif
