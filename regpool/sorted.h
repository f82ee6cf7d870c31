/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An array in order of the uintptr_t that each element begins with, in memory that never moves
 * and is not malloc's. Who uses it locks it.
 */
#ifndef PIN_SORTED_H
#define PIN_SORTED_H

#include "allocator/table.h"

struct pin_sorted {
	size_t element_size;
	_Atomic size_t n;
	struct pin_table table;
};

/* The index of the first element whose key is not below this one; n if there is none. */
size_t pin_sorted_from(const struct pin_sorted *sorted, uintptr_t key);

/* Element i, until the next change; NULL when there are not so many. */
void *pin_sorted_at(const struct pin_sorted *sorted, size_t i);

/* Puts a copy of an element there, where the order wants it. False: there is no memory. */
bool pin_sorted_insert(struct pin_sorted *sorted, size_t i, const void *element);

void pin_sorted_remove(struct pin_sorted *sorted, size_t i);

#endif
