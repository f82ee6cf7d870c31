/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All proxies are in one table and are recognised by address: a pointer that is not ours is
 * never read.
 */
#include <config.h>

#include "regpool/proxy.h"

/*
 * Number 0 is none. Where addresses are limited, so is the heap, and so are these: the tables
 * of domains, and the program, need the rest.
 */
static struct pin_table proxies = PIN_TABLE(struct pin_proxy, (size_t)1 << 22, 4 * PIN_PAGE);
static _Atomic uint32_t n_ever_used = 1;

/*
 * Free proxies, one list for each lane. The lower half of a head is the number of the first;
 * the upper half counts changes, so that compare-and-exchange notices a head that was removed
 * and came back (ABA).
 */
static struct free_list {
	_Atomic uint64_t head;
} PIN_LANE_ALIGNED free_lists[PIN_LANES];

#define COUNT_UNIT ((uint64_t)1 << 32)

/*
 * A bit for each lane whose list may have some. Who frees one sets it, if it is clear; who
 * finds the list empty clears it and looks again, so one of the two sees the other.
 */
static _Atomic uint64_t filled_lanes;

#define LANE(i) ((uint64_t)1 << (i))
_Static_assert(PIN_LANES == 64, "filled_lanes has a bit for each");

/* The next value of a head when `first` (a number, or 0) becomes the first. */
static uint64_t head_after(uint64_t head, uint32_t first)
{
	return ((head & ~(COUNT_UNIT - 1)) + COUNT_UNIT) | first;
}

static struct pin_proxy *proxy_at(uint32_t i)
{
	return pin_table_at(&proxies, struct pin_proxy, i);
}

static struct pin_proxy *pop_free(struct free_list *list)
{
	uint64_t head = atomic_load_explicit(&list->head, memory_order_acquire);
	uint32_t rest;

	do {
		uint32_t first = (uint32_t)head;

		if (!first)
			return NULL;
		rest = atomic_load_explicit(&proxy_at(first)->next, memory_order_relaxed);
	} while (!atomic_compare_exchange_weak(&list->head, &head, head_after(head, rest)));
	return proxy_at((uint32_t)head);
}

/*
 * Takes a proxy from another lane's list. Without this, if some threads register and others
 * deregister, the former would use new proxies and the latter pile them up.
 */
static PIN_COLD struct pin_proxy *pop_from_other_lanes(unsigned lane)
{
	struct pin_proxy *proxy;
	uint64_t filled;

	while ((filled = atomic_load(&filled_lanes))) {
		uint64_t above = filled >> lane << lane;
		int i = __builtin_ctzll(above ? above : filled);

		proxy = pop_free(&free_lists[i]);
		if (proxy)
			return proxy;
		atomic_fetch_and(&filled_lanes, ~LANE(i));
		if ((uint32_t)atomic_load(&free_lists[i].head))
			atomic_fetch_or(&filled_lanes, LANE(i));
	}
	return NULL;
}

static struct pin_proxy *allocate_unused(void)
{
	uint32_t i = atomic_load(&n_ever_used);

	do {
		if (pin_table_ensure(&proxies, (size_t)i + 1))
			return NULL;
	} while (!atomic_compare_exchange_weak(&n_ever_used, &i, i + 1));
	return proxy_at(i);
}

struct pin_proxy *pin_proxy_new(void)
{
	unsigned lane = pin_lane();
	struct pin_proxy *proxy = pop_free(&free_lists[lane]);

	/* There is one for each lane at least, or threads that need one would take turns. */
	if (!proxy && n_ever_used > PIN_LANES)
		proxy = pop_from_other_lanes(lane);
	return proxy ? proxy : allocate_unused();
}

void pin_proxy_free(struct pin_proxy *proxy)
{
	uint32_t number = (uint32_t)(proxy - proxy_at(0));
	unsigned lane = pin_lane();
	struct free_list *list = &free_lists[lane];
	uint64_t head = atomic_load(&list->head);

	do {
		atomic_store_explicit(&proxy->next, (uint32_t)head, memory_order_relaxed);
	} while (!atomic_compare_exchange_weak(&list->head, &head, head_after(head, number)));
	if (PIN_UNLIKELY(!(atomic_load(&filled_lanes) & LANE(lane))))
		atomic_fetch_or(&filled_lanes, LANE(lane));
}

struct pin_proxy *pin_proxy_of(const struct ibv_mr *mr)
{
	size_t offset = (size_t)((const char *)mr - proxies.base);

	if (offset >= proxies.committed * sizeof(struct pin_proxy))
		return NULL;
	return (struct pin_proxy *)(uintptr_t)mr;
}
