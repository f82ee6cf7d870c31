/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Size classes of small blocks: jemalloc's, four for each doubling, from 16 bytes. What is
 * larger, or aligned to more than a page, is a large block (large.h).
 */
#ifndef PIN_CLASSES_H
#define PIN_CLASSES_H

#include "allocator/base.h"

#define PIN_QUANTUM    ((size_t)16) /* all sizes and addresses of blocks are multiples */
#define PIN_SMALL_MOST ((size_t)14336)
#define PIN_CLASSES    35

extern const uint16_t pin_class_sizes[PIN_CLASSES];

/* By the size of a request in quanta, rounded up. Zeroes until pin_classes_init(). */
extern uint8_t pin_class_table[PIN_SMALL_MOST / PIN_QUANTUM + 1];

void pin_classes_init(void);

/* The class of a request of n_bytes, at most PIN_SMALL_MOST. */
static inline unsigned pin_class_of(size_t n_bytes)
{
	return pin_class_table[(n_bytes + PIN_QUANTUM - 1) / PIN_QUANTUM];
}

#endif
