/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Proxies live in a table of their own, so that one is known by its address and
 * nothing is read of a pointer that is not ours.
 */
#include <config.h>

#include "regpool/proxy.h"

#include <pthread.h>
#include <string.h>

#define MOST_PROXIES ((size_t)1 << 22)

static struct pin_table table;
static _Atomic uint32_t ever_used;

/*
 * Free ones, a list a lane. In a head, below, the index + 1 of the first; above, a
 * count that changes at every step, so that a head that went and came back is noticed.
 */
static struct free_list {
	_Atomic uint64_t head;
} PIN_LANE_ALIGNED free_lists[PIN_LANES];

#define STEP ((uint64_t)1 << 32)

/* The head that follows when `first` (index + 1, or 0) is the first. */
static uint64_t head_after(uint64_t head, uint32_t first)
{
	return ((head & ~(STEP - 1)) + STEP) | first;
}

/* Fewer where the address space is limited. */
static void init(void)
{
	size_t n = MOST_PROXIES;

	while (n > 1 && pin_table_init(&table, sizeof(struct pin_proxy), n))
		n /= 2;
}

static struct pin_proxy *at(uint32_t i)
{
	return pin_table_at(&table, struct pin_proxy, i);
}

static struct pin_proxy *pop(struct free_list *list)
{
	uint64_t head = atomic_load_explicit(&list->head, memory_order_acquire);
	uint32_t rest;

	do {
		uint32_t first = (uint32_t)head;

		if (!first)
			return NULL;
		rest = atomic_load_explicit(&at(first - 1)->next, memory_order_relaxed);
	} while (!atomic_compare_exchange_weak(&list->head, &head, head_after(head, rest)));
	return at((uint32_t)head - 1);
}

/*
 * From another lane's list. Where some threads register and others deregister, the
 * first would use up new proxies and the others pile them up.
 */
static PIN_COLD struct pin_proxy *pop_elsewhere(unsigned lane)
{
	struct pin_proxy *proxy = NULL;

	for (unsigned i = 1; i < PIN_LANES && !proxy; i++)
		proxy = pop(&free_lists[(lane + i) % PIN_LANES]);
	return proxy;
}

static struct pin_proxy *take_unused(void)
{
	uint32_t i = atomic_load(&ever_used);

	do {
		if (pin_table_ensure(&table, (size_t)i + 1))
			return NULL;
	} while (!atomic_compare_exchange_weak(&ever_used, &i, i + 1));
	return at(i);
}

struct pin_proxy *pin_proxy_new(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	unsigned lane = pin_lane();
	struct pin_proxy *proxy;

	pthread_once(&once, init);
	proxy = pop(&free_lists[lane]);
	if (!proxy)
		proxy = pop_elsewhere(lane);
	if (!proxy)
		proxy = take_unused();
	if (proxy)
		atomic_store_explicit(&proxy->live, true, memory_order_relaxed);
	return proxy;
}

void pin_proxy_free(struct pin_proxy *proxy)
{
	uint32_t index = (uint32_t)((size_t)((char *)proxy - table.base) / sizeof *proxy) + 1;
	struct free_list *list = &free_lists[pin_lane()];
	uint64_t head = atomic_load(&list->head);

	atomic_store_explicit(&proxy->live, false, memory_order_relaxed);
	do {
		atomic_store_explicit(&proxy->next, (uint32_t)head, memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(
		&list->head, &head, head_after(head, index), memory_order_release,
		memory_order_relaxed));
}

void pin_proxy_fill(struct pin_proxy *proxy, const struct ibv_mr *template,
		    size_t template_bytes, void *addr, size_t length)
{
	if (template_bytes > sizeof proxy->provider)
		template_bytes = sizeof proxy->provider;
	memcpy(proxy->provider, template, template_bytes);
	proxy->mr.addr = addr;
	proxy->mr.length = length;
}

struct pin_proxy *pin_proxy_of(const struct ibv_mr *mr)
{
	size_t offset = (size_t)((const char *)mr - table.base);

	if (!table.base || offset >= table.committed * sizeof(struct pin_proxy))
		return NULL;
	return (struct pin_proxy *)(uintptr_t)mr;
}
