/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/table.h"
#include "allocator/os.h"
#include "allocator/reserve.h"

#include <errno.h>

/*
 * Memory is committed in these steps, so that growing by one element is not a system call
 * each time.
 */
#define STEP (64 * PIN_KIB)

int pin_table_init(struct pin_table *table, size_t element_size, size_t capacity)
{
	table->base = pin_reserve_addresses(PIN_ALIGN_UP(element_size * capacity, STEP));
	table->element_size = element_size;
	table->capacity = capacity;
	return table->base ? 0 : -ENOMEM;
}

/* Lock-free: two threads may commit the same pages, which is harmless. */
int pin_table_ensure(struct pin_table *table, size_t n)
{
	size_t have = atomic_load_explicit(&table->committed, memory_order_acquire);
	size_t from, to;

	if (PIN_LIKELY(n <= have))
		return 0;
	if (!table->base || n > table->capacity)
		return -ENOMEM;
	from = PIN_ALIGN_DOWN(have * table->element_size, STEP);
	to = PIN_ALIGN_UP(n * table->element_size, STEP);
	if (pin_os_commit(table->base + from, to - from))
		return -ENOMEM;
	n = to / table->element_size;
	while (have < n && !atomic_compare_exchange_weak_explicit(&table->committed, &have, n,
								  memory_order_acq_rel,
								  memory_order_acquire))
		;
	return 0;
}
