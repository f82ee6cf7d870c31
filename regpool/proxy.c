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
	_Atomic unsigned after; /* how far on the lane is whose list served this one last */
} PIN_LANE_ALIGNED free_lists[PIN_LANES];

#define COUNT_UNIT ((uint64_t)1 << 32)

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
	unsigned first = free_lists[lane].after, i = first;

	do
		proxy = pop_free(&free_lists[(lane + i) % PIN_LANES]);
	while (!proxy && (i = (i + 1) % PIN_LANES) != first);
	/* Writes only a changed value: all others look at this cache line. */
	if (i != first)
		atomic_store_explicit(&free_lists[lane].after, i, memory_order_relaxed);
	return proxy;
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
	struct free_list *list = &free_lists[pin_lane()];
	uint64_t head = atomic_load(&list->head);

	do {
		atomic_store_explicit(&proxy->next, (uint32_t)head, memory_order_relaxed);
	} while (!atomic_compare_exchange_weak(&list->head, &head, head_after(head, number)));
}

struct pin_proxy *pin_proxy_of(const struct ibv_mr *mr)
{
	size_t offset = (size_t)((const char *)mr - proxies.base);

	if (offset >= proxies.committed * sizeof(struct pin_proxy))
		return NULL;
	return (struct pin_proxy *)(uintptr_t)mr;
}
