/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Running out: of locked memory, of the adapter's memory regions, of whatever a call
 * can fail for. What nobody uses gives way; what is used stays; and no request fails
 * that would have succeeded without the library.
 */
#include <config.h>

#include "regpool/pool.h"
#include "test/regions.h"
#include "test/tap.h"

#include <errno.h>
#include <limits.h>

#define REGIONS 8

static char *heap[REGIONS];

static void locked_memory(void)
{
	char *a = heap[0], *b = heap[1];
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, a, 64, RIGHTS), *other;
	uint64_t evicted = pin_pool.evicted;

	pin_mr_deregister(mr);
	fake_verbs.limit = REGION + PIN_MIB;
	mr = reg(pd, b, 64, RIGHTS);
	ok(mr && pin_pool.evicted == evicted + 1 && fake_verbs.live == 1,
	   "an idle region gives way to one that is needed");
	other = reg(pd, a, 64, RIGHTS);
	ok(other && other->addr == a && pin_pool_requests(PIN_UNPINNED),
	   "one in use does not: the request is handed on");
	pin_mr_deregister(other);
	pin_mr_deregister(mr);
	mr = reg(pd, &mr, 2 * PIN_MIB, RIGHTS);
	ok(mr && fake_verbs.live == 1, "an idle region gives way to foreign memory");
	pin_mr_deregister(mr);
	fake_verbs.limit = SIZE_MAX;
	pin_options.max_pinned = REGION - 1;
	evicted = pin_pool.evicted;
	mr = reg(pd, b, 64, RIGHTS);
	ok(mr && mr->length == 64 && pin_pool.evicted == evicted,
	   "for a region that cannot fit nobody gives way");
	pin_mr_deregister(mr);
	pin_options.max_pinned = REGION;
	mr = reg(pd, a, 64, RIGHTS);
	pin_mr_deregister(mr);
	mr = reg(pd, b, 64, RIGHTS);
	ok(mr && fake_verbs.live == 1 && pin_pool.pinned == REGION,
	   "PINALLOC_MAX_PINNED is kept by eviction");
	pin_options.max_pinned = SIZE_MAX;
	pin_mr_deregister(mr);
	ok(!pin_domain_dealloc(pd) && !pin_pool.pinned, "nothing is left");
}

/* As when the program pins so much that the heap has more than its share. */
static void shrinking_share(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *used = reg(pd, heap[0], 64, RIGHTS), *idle, *own;

	idle = reg(pd, heap[1], 64, RIGHTS);
	pin_mr_deregister(idle);
	pin_options.max_pinned = REGION / 2;
	fake_verbs.limit = 2 * REGION + PIN_PAGE;
	own = reg(pd, &own, 2 * PIN_PAGE, RIGHTS);
	ok(own && reaches(own), "above its share an idle region gives way to foreign memory");
	ok(reaches(used), "and one in use stays");
	pin_options.max_pinned = SIZE_MAX;
	fake_verbs.limit = SIZE_MAX;
	pin_mr_deregister(own);
	pin_mr_deregister(used);
	ok(!pin_domain_dealloc(pd), "nothing is left");
}

/* One at a time, all over the heap; how many were not served. */
static unsigned refused_in_turn(struct ibv_pd *pd)
{
	unsigned refused = 0;

	for (int i = 0; i < 5 * REGIONS; i++) {
		uint64_t served = pin_pool_requests(PIN_SERVED);
		struct ibv_mr *mr = reg(pd, heap[i % REGIONS] + i, 64, RIGHTS);

		refused += !mr || !reaches(mr) || pin_pool_requests(PIN_SERVED) == served;
		pin_mr_deregister(mr);
	}
	return refused;
}

/* The errno values are those of real adapters, see regpool/ibverbs.h. */
static void memory_regions(void)
{
	static const int errors[] = {ENOMEM, EAGAIN, ENOSPC, EOVERFLOW};
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *held[4], *mr;

	fake_verbs.max_mr = 4;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(errors); i++) {
		uint64_t evicted = pin_pool.evicted;

		fake_verbs.full_errno = errors[i];
		ok(!refused_in_turn(pd) && pin_pool.evicted > evicted,
		   "an adapter that is full (%s) takes another region for an idle one",
		   strerrorname_np(errors[i]));
	}
	mr = reg(pd, &mr, sizeof mr, RIGHTS);
	ok(mr && reaches(mr), "and foreign memory");
	pin_mr_deregister(mr);
	for (int i = 0; i < 4; i++)
		held[i] = reg(pd, heap[i], 64, RIGHTS);
	errno = 0;
	mr = reg(pd, heap[4], 64, RIGHTS);
	ok(!mr && errno == EOVERFLOW, "in use they stay, and the error is the adapter's");
	for (int i = 0; i < 4; i++) {
		ok(reaches(held[i]), "region %d is as it was", i);
		pin_mr_deregister(held[i]);
	}
	fake_verbs.max_mr = INT_MAX;
	fake_verbs.full_errno = ENOMEM;
	ok(!pin_domain_dealloc(pd), "nothing is left");
}

static void large_regions(void)
{
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	unsigned tried = fake_verbs.tried;

	fake_verbs.max_mr_size = REGION - 1;
	pd = new_pd();
	mr = reg(pd, heap[0], 64, RIGHTS);
	ok(mr && reaches(mr) && mr->length == 64 && fake_verbs.tried == tried + 1,
	   "of a region that is too large for the adapter a part can be registered");
	pin_mr_deregister(mr);
	ok(!pin_domain_dealloc(pd), "nothing is left");
	fake_verbs.max_mr_size = SIZE_MAX;
	pd = new_pd();
	ok(!refused_in_turn(pd), "another PD, perhaps of another device, asks anew");
	pin_domain_dealloc(pd);
}

/* A region whose registration fails for any reason, once. */
static void failures(void)
{
	static const int errors[] = {ENOMEM, EAGAIN, EINVAL, EFAULT, EACCES, EIO};
	struct ibv_pd *pd = new_pd();

	for (size_t i = 0; i < PIN_ARRAY_SIZE(errors); i++) {
		struct ibv_mr *mr, *again;

		fake_verbs.fail_errno = errors[i];
		fake_verbs.fail_next = 1;
		mr = reg(pd, heap[i], 64, RIGHTS);
		ok(mr && reaches(mr) && mr->length == 64 && !fake_verbs.fail_next,
		   "a region that fails with %s is left to libibverbs",
		   strerrorname_np(errors[i]));
		pin_mr_deregister(mr);
		again = reg(pd, heap[i], 64, RIGHTS);
		ok(again && fake_verbs.registered >= REGION, "and tried again");
		pin_mr_deregister(again);
	}
	ok(!pin_domain_dealloc(pd), "nothing is left");
}

int main(void)
{
	if (!lazy_pool())
		return 99;
	for (int i = 0; i < REGIONS; i++)
		heap[i] = region();
	locked_memory();
	shrinking_share();
	memory_regions();
	large_regions();
	failures();
	ok(!fake_verbs.live && !fake_verbs.wrong, "the books balance");
	return done_testing();
}
