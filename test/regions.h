/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the unit tests of registration share: a heap that is nothing but regions, and
 * protection domains of the stand-in for libibverbs.
 */
#ifndef REGIONS_H
#define REGIONS_H

#include "allocator/options.h"
#include "allocator/region.h"
#include "regpool/domain.h"
#include "regpool/mr.h"
#include "test/fake-verbs.h"

#include <stdlib.h>

#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)
#define REGION (4 * PIN_MIB)

/* A pool that registers what is asked for and nothing ahead. Once, first. */
static inline bool lazy_pool(void)
{
	setenv("PINALLOC_LOG", "error", 1);
	setenv("PINALLOC_REGISTER", "lazy", 1);
	pin_options_init();
	fake_verbs_install();
	return !pin_reserve_init() && !pin_region_init();
}

static inline char *region(void)
{
	char *p = pin_reserve_carve(REGION, PIN_PAGE);

	pin_region_publish((uintptr_t)p, REGION);
	return p;
}

static inline struct ibv_mr *reg(struct ibv_pd *pd, void *p, size_t n, unsigned access)
{
	return pin_mr_register(pd, p, n, (uintptr_t)p, access);
}

static inline struct ibv_pd *new_pd(void)
{
	struct ibv_pd *pd = pin_ibverbs()->alloc_pd(fake_context());

	pin_domain_notice(pd);
	return pd;
}

struct keys {
	uint32_t lkey, rkey;
};

static inline int look_up(struct ibv_pd *pd, const void *addr, size_t length, struct keys *keys)
{
	return pin_mr_lookup(pd, addr, length, &keys->lkey, &keys->rkey);
}

/* Whether the adapter would let the MR's keys touch what it stands for. */
static inline bool reaches(const struct ibv_mr *mr)
{
	return fake_keys_reach(mr->lkey, mr->rkey, mr->pd, mr->addr, mr->length);
}

#endif
