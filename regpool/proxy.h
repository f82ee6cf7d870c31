/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The struct ibv_mr a program gets when its request is served from the heap: the
 * keys of a memory region under the address and length it asked for. It begins with a byte
 * copy of the provider's own structure, because mlx5 and irdma look behind the
 * public part when a memory window is bound.
 */
#ifndef PIN_PROXY_H
#define PIN_PROXY_H

#include "regpool/places.h"

/* The largest provider structure known is irdma's, under 128 bytes. */
#define PIN_PROVIDER_BYTES 192

struct pin_proxy {
	union {
		struct ibv_mr mr; /* what the program holds */
		unsigned char provider[PIN_PROVIDER_BYTES];
	};
	struct pin_domain *domain;
	struct pin_user_count *user; /* where it is counted; NULL with `own` */
	struct ibv_mr *own;	     /* after a rereg that went to libibverbs: a real MR */
	uint32_t generation;	     /* of the domain */
	unsigned access;	     /* as requested */
	_Atomic uint32_t next;	     /* in the free list: index + 1 */
	_Atomic bool live;
} __attribute__((aligned(256)));

/* A proxy that is nobody's yet, or NULL when there is no room. Lock-free. */
struct pin_proxy *pin_proxy_new(void);

/* Lock-free. */
void pin_proxy_free(struct pin_proxy *proxy);

/*
 * Points the proxy at the real MR `template` as seen through [addr, addr + length).
 */
void pin_proxy_fill(struct pin_proxy *proxy, const struct ibv_mr *template,
		    size_t template_bytes, void *addr, size_t length);

/* The proxy an MR is, live or not; NULL when it is libibverbs' own. Lock-free. */
struct pin_proxy *pin_proxy_of(const struct ibv_mr *mr);

#endif
