/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A proxy is the struct ibv_mr that a program gets when its request is served from the heap:
 * the keys of a memory region, with the address and length that were asked for. It begins with
 * a copy of the provider's structure, because mlx5 and irdma read beyond struct ibv_mr when a
 * memory window is bound.
 */
#pragma once

#include "regpool/entries.h"

struct pin_proxy {
	union {
		struct ibv_mr mr; /* what the program holds */
		struct pin_mr_copy copy;
	};
	struct pin_access_set *set;
	_Atomic uint32_t *user; /* counts this proxy there; NULL with `own` */
	struct ibv_mr *own;	/* real MR, after an ibv_rereg_mr() that went to libibverbs */
	unsigned access;	/* as requested */
	_Atomic uint32_t next;	/* in a free list: a number, or 0 */
	_Atomic bool live;
} PIN_LANE_ALIGNED;

/* Allocates a proxy, which is not live. NULL if there is no room. Lock-free. */
struct pin_proxy *pin_proxy_new(void);

/* Frees a proxy, which is not live. Lock-free. */
void pin_proxy_free(struct pin_proxy *proxy);

/*
 * The proxy that `mr` points to, allocated or free; NULL if it is libibverbs' own. Lock-free.
 */
struct pin_proxy *pin_proxy_of(const struct ibv_mr *mr);
