/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Questions to a set of free extents that jemalloc's own search cannot ask. They are asked by
 * way of a search of the calling thread's, which then runs under the set's lock.
 */
#ifndef PIN_FIT_H
#define PIN_FIT_H

#include "allocator/base.h"

struct pin_fit_question {
	const char *from, *to; /* a block, or NULL */
	/* Answers, right only until the set's lock is let go. */
	size_t before, behind; /* bytes free right before the block and right behind it */
	const char *last;      /* the free extent at the highest address, or NULL */
	size_t last_size;
};

/* Not NULL: the calling thread's next search answers it, and finds nothing. */
extern __thread struct pin_fit_question *pin_fit_question
	__attribute__((tls_model("initial-exec")));

/*
 * Not NULL: the calling thread's next search finds the extent that ends here, if it has
 * exactly the size asked for, and else nothing.
 */
extern __thread const char *pin_fit_end __attribute__((tls_model("initial-exec")));

/* Not 0: the calling thread's searches find nothing that would be used beyond this address. */
extern __thread uintptr_t pin_fit_limit __attribute__((tls_model("initial-exec")));

#endif
