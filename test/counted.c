/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "test/counted.h"
#include "regpool/granule.h"
#include "regpool/ibverbs.h"
#include "regpool/state.h"
#include "test/fake-kernel.h"
#include "test/spans.h"

#include <errno.h>

static const struct pin_ibverbs *fake;
static _Atomic size_t n_bytes, n_pages;	    /* registered; with one memory region or more */
static _Atomic uint16_t n_regions[1 << 24]; /* of each page */

_Thread_local unsigned counted_denials;

/* The library's own are whole pages of the heap; what the tests ask for never is. */
static bool is_librarys(const struct ibv_mr *mr)
{
	return pin_reserve_contains(mr->addr) && !((uintptr_t)mr->addr % PIN_PAGE) &&
	       !(mr->length % PIN_PAGE);
}

static void count(const struct ibv_mr *mr, bool is_more)
{
	size_t first = ((uintptr_t)mr->addr - pin_reserve.base) / PIN_PAGE;

	if (!is_librarys(mr))
		return;
	n_bytes += is_more ? mr->length : -mr->length;
	for (size_t i = first; i < first + mr->length / PIN_PAGE; i++)
		if (is_more)
			n_pages += !n_regions[i]++;
		else
			n_pages -= !--n_regions[i];
}

static struct ibv_mr *register_counted(struct ibv_pd *pd, void *addr, size_t length,
				       uint64_t iova, unsigned access)
{
	struct ibv_mr *mr = fake->reg_mr_iova2(pd, addr, length, iova, access);

	if (!mr)
		return NULL;
	count(mr, true);
	if (pin_reserve_contains(addr))
		fake_touch(addr, length);
	return mr;
}

int counted_dereg(struct ibv_mr *mr)
{
	if (is_librarys(mr) && counted_denials) {
		counted_denials--;
		return EBUSY;
	}
	count(mr, false);
	return fake->dereg_mr(mr);
}

void counted_install(void)
{
	fake = replace_verbs(register_counted, counted_dereg);
	fake_kernel.keeps_memory = true;
}

bool counted_is_balanced(void)
{
	return pin_state.registered == n_bytes && pin_state.pinned == n_pages * PIN_PAGE;
}
