/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a report says first, of one process or of all of a job: was every registration served,
 * what did never returning memory cost, which limit was nearest, and what is there beside the
 * heap.
 */
#ifndef PIN_VERDICT_H
#define PIN_VERDICT_H

#include "preload/figures.h"
#include "regpool/state.h"

#include <stdint.h>

enum pin_limit {
#define LIMIT(used, limit, ...) PIN_LIMIT_##limit,
#include "preload/limits.def"
#undef LIMIT
	PIN_LIMITS
};

/* What a process had of a limit. */
struct pin_limit_use {
	enum pin_limit which;
	int64_t used, limit; /* -1 if it is not known */
};

struct pin_verdict {
	size_t n_processes;
	int64_t figures[PIN_FIGURES]; /* sums, -1 where a process has none; SECONDS the most */
	int64_t reasons[PIN_REASONS]; /* requests by what became of them */
	struct pin_limit_use nearest; /* of all processes; limit -1: none is known */
	/* Which process was nearest, has most beside the heap, took longest; "" for one alone.
	 */
	char nearest_of[96], most_beside_of[96], slowest_of[96];
};

/* The limit that a process was nearest to. What is above its limit ignores it. */
struct pin_limit_use pin_limit_nearest(const int64_t *figures);
bool pin_limit_is_nearer(struct pin_limit_use a, struct pin_limit_use b);

/* Bytes in memory beside the heap; at least so many if *is_least; -1 if that is not known. */
int64_t pin_verdict_beside(const int64_t *figures, bool *is_least);

/*
 * Puts answer i, of PIN_VERDICT_ANSWERS, into text: one line or two, each with its end, or
 * none. Async-signal-safe.
 */
#define PIN_VERDICT_ANSWERS 4
void pin_verdict_answer(const struct pin_verdict *verdict, int i, char *text, size_t size);

#endif
