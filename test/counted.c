/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "test/counted.h"
#include "regpool/granule.h"
#include "regpool/ibverbs.h"
#include "regpool/pool.h"
#include "test/fake-kernel.h"

/* Indexed from the base of the heap. */
#define MOST_GRANULES ((size_t)1 << 20)

static const struct pin_ibverbs *fake;
static _Atomic unsigned n_regions[MOST_GRANULES];

/* The library's own are whole granules of the heap; what the tests ask for never is. */
static bool is_librarys(const struct ibv_mr *mr)
{
	return pin_reserve_contains(mr->addr) && !((uintptr_t)mr->addr % PIN_GRANULE) &&
	       !(mr->length % PIN_GRANULE);
}

static void count(const struct ibv_mr *mr, unsigned by)
{
	size_t first = pin_granule_of((uintptr_t)mr->addr);

	for (size_t i = 0; is_librarys(mr) && i < mr->length / PIN_GRANULE; i++)
		n_regions[first + i] += by;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			  unsigned access)
{
	struct ibv_mr *mr = fake->reg_mr_iova2(pd, addr, length, iova, access);

	if (!mr)
		return NULL;
	count(mr, 1);
	if (pin_reserve_contains(addr))
		fake_touch(addr, length);
	return mr;
}

int counted_dereg(struct ibv_mr *mr)
{
	count(mr, -1u);
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

/* How many granules of a range have memory regions; SIZE_MAX if not as many as it is told. */
static size_t count_pinned(struct pin_range range)
{
	size_t n = 0;

	for (size_t i = pin_granule_of(range.start); i < pin_granule_of(range.end); i++) {
		if (pin_granule_n_pins(i) != n_regions[i])
			return SIZE_MAX;
		n += n_regions[i] != 0;
	}
	return n;
}

bool counted_is_balanced(void)
{
	size_t sum = 0, n;

	for (uint32_t i = 0; i < pin_span_count(); i++) {
		struct pin_range range = pin_range_of_span(pin_span_get(i));

		n = range.end ? count_pinned(range) : 0;
		if (n == SIZE_MAX)
			return false;
		sum += n;
	}
	return pin_pool.pinned == sum * PIN_GRANULE;
}
