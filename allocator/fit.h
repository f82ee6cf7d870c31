/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A tree of free runs, which lie in pin_pages.records, sorted by address: a treap, whose
 * priorities are a hash of the address. Each node knows the longest run below it. Nodes are
 * named by the run's first page; 0 is none. Not thread-safe.
 */
#ifndef PIN_FIT_H
#define PIN_FIT_H

#include "allocator/base.h"

/* `page` must be the first of a run whose record has its length. */
void pin_fit_insert(uint32_t *root, uint32_t page);
void pin_fit_delete(uint32_t *root, uint32_t page);

struct pin_fit {
	uint32_t n_pages, alignment; /* pages */
};

/* The lowest run that has room; 0 if there is none. */
uint32_t pin_fit_find(uint32_t root, const struct pin_fit *fit);

/* The longest run, and the first one that begins at `page` or behind; 0 if there is none. */
uint32_t pin_fit_longest(uint32_t root);
uint32_t pin_fit_next(uint32_t root, uint32_t page);

#endif
