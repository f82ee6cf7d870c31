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
 * The free list: index + 1 of its head below, and above it a count that changes
 * at every step, so that a head that went and came back is noticed.
 */
static _Atomic uint64_t free_head;

/* Fewer where the address space is limited. */
static void init(void)
{
	size_t n = MOST_PROXIES;

	while (n > 1 && pin_table_init(&table, sizeof(struct pin_proxy), n))
		n /= 2;
}

static struct pin_proxy *at(uint32_t i)
{
	return pin_table_at(&table, i);
}

static struct pin_proxy *pop(void)
{
	uint64_t head = atomic_load_explicit(&free_head, memory_order_acquire);
	uint64_t rest;

	do {
		uint32_t first = (uint32_t)head;

		if (!first)
			return NULL;
		rest = atomic_load_explicit(&at(first - 1)->next, memory_order_relaxed);
		rest |= (head & ~(uint64_t)UINT32_MAX) + ((uint64_t)1 << 32);
	} while (!atomic_compare_exchange_weak(&free_head, &head, rest));
	return at((uint32_t)head - 1);
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
	struct pin_proxy *proxy;

	pthread_once(&once, init);
	proxy = pop();
	if (!proxy)
		proxy = take_unused();
	if (proxy)
		atomic_store_explicit(&proxy->live, true, memory_order_relaxed);
	return proxy;
}

void pin_proxy_free(struct pin_proxy *proxy)
{
	uint64_t index = (uint64_t)((char *)proxy - table.base) / sizeof *proxy + 1;
	uint64_t head = atomic_load(&free_head);
	uint64_t next;

	atomic_store_explicit(&proxy->live, false, memory_order_relaxed);
	do {
		atomic_store_explicit(&proxy->next, (uint32_t)head, memory_order_relaxed);
		next = index | ((head & ~(uint64_t)UINT32_MAX) + ((uint64_t)1 << 32));
	} while (!atomic_compare_exchange_weak_explicit(
		&free_head, &head, next, memory_order_release, memory_order_relaxed));
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
