/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the unit tests of registration: a heap that consists of spans only, and protection
 * domains of the stand-in for libibverbs.
 */
#ifndef SPANS_H
#define SPANS_H

#include "allocator/hooks.h"
#include "allocator/options.h"
#include "allocator/pages.h"
#include "allocator/reserve.h"
#include "allocator/span.h"
#include "regpool/domain.h"
#include "regpool/foreign.h"
#include "regpool/mr.h"
#include "regpool/state.h"
#include "test/blocks.h"
#include "test/fake-verbs.h"

#include <stdlib.h>

#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

#define PIECE PIN_GRANULE

/* A pool that registers what is asked for and nothing ahead, without limits. Once, first. */
static inline bool lazy_pool(void)
{
	setenv("PINALLOC_LOG", "error", 0);
	setenv("PINALLOC_REGISTER", "lazy", 1);
	setenv("PINALLOC_MAX_PINNED", "none", 1);
	pin_options_init();
	fake_verbs_install();
	pin_hooks.withdraw_keys = pin_domain_withdraw;
	pin_hooks.settle_foreign = pin_foreign_settle;
	return !pin_reserve_init() && !pin_pages_init();
}

/* Puts these in front of functions of the stand-in; NULL: not of that. Returns what was there.
 */
static inline const struct pin_ibverbs *
replace_verbs(__typeof__(((struct pin_ibverbs *)0)->reg_mr_iova2) reg_mr,
	      int (*dereg_mr)(struct ibv_mr *mr))
{
	const struct pin_ibverbs *before = pin_ibverbs();
	static struct pin_ibverbs table;

	table = *before;
	table.reg_mr_iova2 = reg_mr ? reg_mr : before->reg_mr_iova2;
	table.dereg_mr = dereg_mr ? dereg_mr : before->dereg_mr;
	pin_ibverbs_replace(&table);
	return before;
}

/* Memory behind all there was in a span (NULL: one that begins), as if it was all taken. */
static inline char *grow(struct pin_span **span, size_t n_bytes)
{
	char *p = span_grow(span, n_bytes, 0);

	pin_state_changed();
	return p;
}

static inline struct ibv_mr *reg(struct ibv_pd *pd, void *p, size_t n, unsigned access)
{
	return pin_mr_register(pd, p, n, (uintptr_t)p, access, NULL);
}

static inline struct ibv_pd *new_pd_of(struct ibv_context *context)
{
	struct ibv_pd *pd = pin_ibverbs()->alloc_pd(context);

	pin_domain_notice(pd);
	return pd;
}

static inline struct ibv_pd *new_pd(void)
{
	return new_pd_of(fake_context());
}

/* With all rights of PINALLOC_ACCESS. */
static inline int look_up(struct ibv_pd *pd, const void *addr, size_t length,
			  struct pin_mr_key *keys)
{
	return pin_mr_lookup(pd, addr, length, pin_options.access, keys);
}

/* With the PD, which can be deallocated, goes all that was registered. */
#define nothing_is_left(pd)                                                    \
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live && !fake_verbs.wrong && \
		   !pin_state.registered,                                      \
	   "nothing is left")

/* Whether the adapter would let the MR's keys touch what it stands for. */
static inline bool reaches(const struct ibv_mr *mr)
{
	return fake_keys_reach(mr->lkey, mr->rkey, mr->pd, mr->addr, mr->length);
}

#endif
