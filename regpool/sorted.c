/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/sorted.h"

#include <string.h>

/* More registrations than any process has. */
#define MOST ((size_t)1 << 22)

static char *place(const struct pin_sorted *sorted, size_t i)
{
	return sorted->table.base + i * sorted->element_size;
}

size_t pin_sorted_lower_bound(const struct pin_sorted *sorted, uintptr_t key)
{
	size_t low = 0, high = sorted->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (*(uintptr_t *)(void *)place(sorted, middle) < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void *pin_sorted_at(const struct pin_sorted *sorted, size_t i)
{
	return i < sorted->n ? place(sorted, i) : NULL;
}

bool pin_sorted_insert(struct pin_sorted *sorted, size_t i, const void *element)
{
	if (!sorted->table.base && pin_table_init(&sorted->table, sorted->element_size, MOST))
		return false;
	if (pin_table_ensure(&sorted->table, sorted->n + 1))
		return false;
	memmove(place(sorted, i + 1), place(sorted, i), (sorted->n - i) * sorted->element_size);
	memcpy(place(sorted, i), element, sorted->element_size);
	sorted->n++;
	return true;
}

void pin_sorted_remove(struct pin_sorted *sorted, size_t i)
{
	sorted->n--;
	memmove(place(sorted, i), place(sorted, i + 1), (sorted->n - i) * sorted->element_size);
}
