/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Searches of a set of free extents that jemalloc's interface has no arguments for. The
 * caller sets one of these variables and makes jemalloc search the set; the search then runs
 * under the set's lock.
 */
#ifndef PIN_FIT_H
#define PIN_FIT_H

#include "allocator/base.h"

struct pin_fit_query {
	const char *from, *to; /* a block's start and end, or NULL */
	/* Results, valid only until the set's lock is released. */
	size_t before, behind; /* bytes free directly before and behind the block */
	const char *last;      /* the free extent at the highest address, or NULL */
	size_t last_size;
};

/* If not NULL, the calling thread's next search fills it in and finds nothing. */
extern __thread struct pin_fit_query *pin_fit_query __attribute__((tls_model("initial-exec")));

/*
 * If not NULL, the calling thread's next search finds the extent that ends at this address,
 * provided it has exactly the requested size, and otherwise nothing.
 */
extern __thread const char *pin_fit_end __attribute__((tls_model("initial-exec")));

/* If not 0, the calling thread's searches find nothing that would end beyond this address. */
extern __thread uintptr_t pin_fit_limit __attribute__((tls_model("initial-exec")));

#endif
