/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/reserve.h"
#include "allocator/log.h"
#include "allocator/os.h"

#include <stdatomic.h>

/*
 * Address space costs nothing until it is committed, so the first attempt is larger than any
 * machine's memory. The minimum is what a shell needs to run.
 */
#define LARGEST	 (16 * PIN_TIB)
#define SMALLEST (8 * PIN_MIB)

/* The share of addresses added above the heap for tables and jemalloc's own data. */
#define SHARE_OF_TABLES 16

/*
 * A leaf of jemalloc's page table covers one GiB. A heap that began shortly before the end of
 * a GiB would need two leaves from its first growth on, which would cost the start of every
 * such program memory and a system call. (Leaves of 57-bit addresses are so small that a second
 * one does not matter.)
 */
#define LEAF_SIZE   PIN_GIB
#define MIN_IN_LEAF (32 * PIN_MIB)

struct pin_reserve pin_reserve;

/* Of a heap that may need more addresses than it has. */
#define SAYS_LIMIT "the heap can grow to %s at most: %s (see ulimit -v)"
static const char *limited_by;

/* How many bytes were carved. */
static _Atomic size_t carved;

/* Addresses above the heap; handed out upwards. */
static struct {
	_Atomic uintptr_t start;
	uintptr_t end;
} spare;

/* Under a limit, a quarter is left for the program's stacks, libraries and mappings. */
static size_t initial_size(void)
{
	size_t left = pin_os_address_space_left();
	size_t size = LARGEST;

	if (left != SIZE_MAX && left / 4 * 3 < size)
		size = PIN_ALIGN_DOWN(left / 4 * 3, PIN_GRANULE);
	return size;
}

/* The heap's first address in a range. If addresses are scarce, none are skipped. */
static uintptr_t heap_start(uintptr_t from, size_t size)
{
	uintptr_t first = PIN_ALIGN_UP(from, PIN_GRANULE), end = PIN_ALIGN_UP(first, LEAF_SIZE);

	return size == LARGEST && end - first < MIN_IN_LEAF ? end : first;
}

int pin_reserve_init(void)
{
	size_t wanted = initial_size(), data = pin_os_data_limit();
	size_t size = wanted, dumped;
	char *p = NULL;

	PIN_ASSERT(!pin_reserve.base);
	while (size >= SMALLEST &&
	       !(p = pin_os_reserve(size + size / SHARE_OF_TABLES + PIN_GRANULE)))
		size = PIN_ALIGN_DOWN(size / 2, PIN_GRANULE);
	if (!p)
		return -ENOMEM;
	/* A range larger than memory needs no warning, nor does any before it is used up. */
	if (size < LARGEST && size < pin_os_ram())
		limited_by = wanted < LARGEST ? "the address space is limited"
					      : "the kernel gives no larger range of addresses";
	if (limited_by)
		pin_info(SAYS_LIMIT, PIN_SIZE(size), limited_by);
	pin_reserve.base = heap_start((uintptr_t)p, size);
	pin_reserve.size = size;
	pin_reserve.memory = data < size ? data : size;
	atomic_store(&spare.start, pin_reserve.base + size);
	spare.end = (uintptr_t)p + size + size / SHARE_OF_TABLES + PIN_GRANULE;
	pin_os_advise((void *)spare.start, spare.end - spare.start, PIN_SMALL_PAGES);
	dumped = size < PIN_RESERVE_DUMPED ? size : PIN_RESERVE_DUMPED;
	pin_os_advise((void *)(pin_reserve.base + dumped),
		      spare.end - pin_reserve.base - dumped, PIN_NOT_DUMPED);
	return 0;
}

/* Of the addresses above the heap; 0 if those are used up. */
static uintptr_t take_spare(size_t n_bytes, size_t alignment)
{
	uintptr_t start = atomic_load(&spare.start), from;

	do {
		from = PIN_ALIGN_UP(start, alignment);
		if (from < start || from > spare.end || n_bytes > spare.end - from)
			return 0;
	} while (!atomic_compare_exchange_weak(&spare.start, &start, from + n_bytes));
	return from;
}

void *pin_reserve_addresses(size_t n_bytes)
{
	void *p = (void *)take_spare(n_bytes, PIN_PAGE);

	if (p)
		return p;
	p = pin_os_reserve(n_bytes);
	if (p) {
		pin_os_advise(p, n_bytes, PIN_SMALL_PAGES);
		pin_os_advise(p, n_bytes, PIN_NOT_DUMPED);
	}
	return p;
}

void *pin_reserve_memory(size_t n_bytes, size_t alignment)
{
	uintptr_t start = take_spare(n_bytes, alignment), end = start + n_bytes;

	if (!start || !pin_os_commit((void *)start, n_bytes))
		return (void *)start;
	/* Unless another thread has taken more since: then they stay unused. */
	atomic_compare_exchange_strong(&spare.start, &end, start);
	return NULL;
}

uintptr_t pin_reserve_carve(size_t n_bytes)
{
	size_t n = PIN_ALIGN_UP(n_bytes, PIN_GRANULE), taken = atomic_load(&carved);

	do {
		if (n >= n_bytes && n <= pin_reserve.size - taken)
			continue;
		if (limited_by)
			pin_warn_once(SAYS_LIMIT, PIN_SIZE(pin_reserve.size), limited_by);
		return 0;
	} while (!atomic_compare_exchange_weak(&carved, &taken, taken + n));
	return pin_reserve.base + taken;
}

/* --- tables ------------------------------------------------------------------------------ */

/*
 * Memory is committed in these steps, so that growing by one element is not a system call
 * each time.
 */
#define TABLE_STEP (64 * PIN_KIB)

static size_t capacity_of(const struct pin_table *table)
{
	size_t n = table->each ? pin_reserve.size / table->each : table->most;

	return n < table->most ? n : table->most;
}

/* Of two threads that reserve addresses at once one's stay unused. */
static bool reserve_table(struct pin_table *table)
{
	size_t n_bytes = capacity_of(table) * table->element_size;
	char *base = pin_reserve_addresses(PIN_ALIGN_UP(n_bytes, TABLE_STEP));

	if (base)
		(void)__sync_bool_compare_and_swap(&table->base, NULL, base);
	return base;
}

/* Lock-free: two threads may commit the same pages, which is harmless. */
int pin_table_ensure(struct pin_table *table, size_t n)
{
	size_t have = atomic_load_explicit(&table->committed, memory_order_acquire);
	size_t from, to;

	if (PIN_LIKELY(n <= have))
		return 0;
	if (n > capacity_of(table) || (!table->base && !reserve_table(table)))
		return -ENOMEM;
	from = PIN_ALIGN_DOWN(have * table->element_size, TABLE_STEP);
	to = PIN_ALIGN_UP(n * table->element_size, TABLE_STEP);
	if (pin_os_commit(table->base + from, to - from))
		return -ENOMEM;
	n = to / table->element_size;
	while (have < n && !atomic_compare_exchange_weak_explicit(&table->committed, &have, n,
								  memory_order_acq_rel,
								  memory_order_acquire))
		;
	return 0;
}
