/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A flat array whose address space is reserved at once and whose memory is
 * committed as it is needed: elements never move, so readers need no lock, and
 * it can grow inside malloc because it does not use malloc.
 */
#ifndef PIN_TABLE_H
#define PIN_TABLE_H

#include "allocator/base.h"

#include <stdatomic.h>

struct pin_table {
	char *base;		  /* NULL until initialised */
	size_t element_size;	  /* bytes */
	size_t capacity;	  /* elements */
	_Atomic size_t committed; /* elements that may be touched */
};

/* Reserves room for `capacity` elements. Returns 0 or -ENOMEM. */
int pin_table_init(struct pin_table *table, size_t element_size, size_t capacity);

/*
 * Makes elements [0, n) usable; new ones are zero. Returns 0, or -ENOMEM beyond
 * the capacity or when the kernel refuses. Thread-safe, never allocates.
 */
int pin_table_ensure(struct pin_table *table, size_t n);

/*
 * Element i, which must have been made usable, as a type * of the size the table
 * was made with. A constant size, because look-ups pass here.
 */
#define pin_table_at(table, type, i) ((type *)(void *)(table)->base + (i))

#endif
