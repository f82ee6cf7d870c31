/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A proxy is the struct ibv_mr that a program gets when its request is served from the heap:
 * the keys of a memory region, with the address and length that were asked for. It begins with
 * a copy of the provider's structure, because mlx5 and irdma read beyond struct ibv_mr when a
 * memory window is bound.
 */
#ifndef PIN_PROXY_H
#define PIN_PROXY_H

#include "regpool/entries.h"

/* The largest provider structure known is irdma's, under 128 bytes. */
#define PIN_PROVIDER_BYTES 192

struct pin_proxy {
	union {
		struct ibv_mr mr; /* what the program holds */
		unsigned char provider[PIN_PROVIDER_BYTES];
	};
	struct pin_domain *domain;
	struct pin_user_count *user; /* counts this proxy; NULL with `own` */
	struct ibv_mr *own;    /* real MR, after an ibv_rereg_mr() that went to libibverbs */
	uint32_t generation;   /* of the domain, when it was served */
	unsigned access;       /* as requested */
	_Atomic uint32_t next; /* in a free list: index + 1 */
	_Atomic bool live;
} __attribute__((aligned(256)));

/* Allocates a proxy. NULL if there is no room. Lock-free. */
struct pin_proxy *pin_proxy_new(void);

/* Frees a proxy. Lock-free. */
void pin_proxy_free(struct pin_proxy *proxy);

/*
 * Fills the proxy with a copy of the real MR `template`, of which `template_bytes` bytes may be
 * read, and the program's address and length.
 */
void pin_proxy_fill(struct pin_proxy *proxy, const struct ibv_mr *template,
		    size_t template_bytes, void *addr, size_t length);

/*
 * The proxy that `mr` points to, allocated or free; NULL if it is libibverbs' own. Lock-free.
 */
struct pin_proxy *pin_proxy_of(const struct ibv_mr *mr);

#endif
