/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where free runs are, by address and length: for each 16 pages the length of the longest run
 * that begins there, for each 64 of those groups the longest, and so on up to one node. Runs
 * themselves lie in pin_pages. Not thread-safe.
 */
#ifndef PIN_FIT_H
#define PIN_FIT_H

#include "allocator/pages.h"

#define PIN_FIT_LEVELS 5 /* of 64 TiB */

struct pin_fit {
	struct pin_fit_level {
		struct pin_fit_node *nodes;
		uint32_t from, to; /* those that are committed */
	} levels[PIN_FIT_LEVELS];  /* the lowest first */
	unsigned n_levels;	   /* that there are yet */
};

/* Makes it cover pages that pin_pages covers. Returns 0 or -ENOMEM. */
int pin_fit_cover(struct pin_fit *fit, uint32_t page, uint32_t n_pages);

/* A free run of this kind begins at `page` from now on, as pin_pages has it. */
void pin_fit_insert(struct pin_fit *fit, enum pin_kind kind, uint32_t page);

/* One of this length does no more, as pin_pages has it. */
void pin_fit_delete(struct pin_fit *fit, enum pin_kind kind, uint32_t page, uint32_t length);

/*
 * The first run, or the first that begins behind `page`, which must be covered, that has at
 * least so many pages, which are not 0. 0 if there is none.
 */
uint32_t pin_fit_first(const struct pin_fit *fit, enum pin_kind kind, uint32_t n_pages);
uint32_t pin_fit_next(const struct pin_fit *fit, enum pin_kind kind, uint32_t page,
		      uint32_t n_pages);

/* The first run that has room for so many pages at a multiple of `alignment`; 0: none. */
uint32_t pin_fit_find(const struct pin_fit *fit, enum pin_kind kind, uint32_t n_pages,
		      uint32_t alignment);

/* The longest run; 0 if there is none. */
uint32_t pin_fit_longest(const struct pin_fit *fit, enum pin_kind kind);

#endif
