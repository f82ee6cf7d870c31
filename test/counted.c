/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "test/counted.h"
#include "regpool/granule.h"
#include "regpool/ibverbs.h"
#include "regpool/state.h"
#include "test/fake-kernel.h"

static const struct pin_ibverbs *fake;
static _Atomic size_t n_bytes;

/* The library's own are whole pages of the heap; what the tests ask for never is. */
static bool is_librarys(const struct ibv_mr *mr)
{
	return pin_reserve_contains(mr->addr) && !((uintptr_t)mr->addr % PIN_PAGE) &&
	       !(mr->length % PIN_PAGE);
}

static void count(const struct ibv_mr *mr, size_t length)
{
	if (is_librarys(mr))
		n_bytes += length;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			  unsigned access)
{
	struct ibv_mr *mr = fake->reg_mr_iova2(pd, addr, length, iova, access);

	if (!mr)
		return NULL;
	count(mr, length);
	if (pin_reserve_contains(addr))
		fake_touch(addr, length);
	return mr;
}

int counted_dereg(struct ibv_mr *mr)
{
	count(mr, -mr->length);
	return fake->dereg_mr(mr);
}

void counted_install(void)
{
	static struct pin_ibverbs table;

	fake = pin_ibverbs();
	table = *fake;
	table.reg_mr_iova2 = reg;
	table.dereg_mr = counted_dereg;
	pin_ibverbs_replace(&table);
	fake_kernel.keeps_memory = true;
}

bool counted_is_balanced(void)
{
	return pin_state.registered == n_bytes;
}
