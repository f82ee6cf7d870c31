/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A flat array whose address space is reserved at once and whose memory is committed as
 * needed. Elements never move, so readers need no lock. It does not use malloc, so it can
 * grow inside malloc.
 */
#ifndef PIN_TABLE_H
#define PIN_TABLE_H

#include "allocator/base.h"

#include <stdatomic.h>

struct pin_table {
	char *base;		  /* NULL until initialised */
	size_t element_size;	  /* bytes */
	size_t capacity;	  /* elements */
	_Atomic size_t committed; /* elements that may be accessed */
};

/* Reserves room for `capacity` elements. Returns 0 or -ENOMEM. */
int pin_table_init(struct pin_table *table, size_t element_size, size_t capacity);

/*
 * Makes elements [0, n) accessible; new ones are zero. Returns 0, or -ENOMEM if n is beyond
 * the capacity or the kernel refuses. Thread-safe, never allocates.
 */
int pin_table_ensure(struct pin_table *table, size_t n);

/*
 * Element i, which must be accessible, as a type * whose size is the table's element_size. A
 * macro, so that fast look-ups use a constant size.
 */
#define pin_table_at(table, type, i) ((type *)(void *)(table)->base + (i))

#endif
