/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A sorted array. Its elements begin with a uintptr_t key. Its memory does not move and does
 * not come from malloc. The caller does the locking.
 */
#ifndef PIN_SORTED_H
#define PIN_SORTED_H

#include "allocator/table.h"

struct pin_sorted {
	size_t element_size;
	_Atomic size_t n;
	struct pin_table table;
};

/* The index of the first element whose key is not less than `key`; n if there is none. */
size_t pin_sorted_lower_bound(const struct pin_sorted *sorted, uintptr_t key);

/* Element i, valid until the next change; NULL if i is out of range. */
void *pin_sorted_at(const struct pin_sorted *sorted, size_t i);

/*
 * Inserts a copy of an element before element i, which must keep the array sorted. Returns
 * false if there is no memory.
 */
bool pin_sorted_insert(struct pin_sorted *sorted, size_t i, const void *element);

void pin_sorted_remove(struct pin_sorted *sorted, size_t i);

#endif
