/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What sh6 and sh8 share: a list of blocks that is filled lap after lap. Between two laps it
 * is emptied, but for a fifth, the next in each lap: what lies before that is freed in the
 * order in which it came, what lies behind it in the opposite one.
 */
#ifndef LAPS_H
#define LAPS_H

#include "workload.h"

struct laps {
	char **blocks;
	size_t n, at;
	size_t kept, kept_end; /* nothing in the first lap */
};

static inline struct laps laps_begin(size_t n)
{
	return (struct laps){need(malloc(n * sizeof(char *))), n, 0, n, n};
}

static inline void laps_skip_kept(struct laps *laps)
{
	if (laps->at == laps->kept)
		laps->at = laps->kept_end;
}

static inline void laps_next(struct laps *laps)
{
	laps->kept = laps->kept_end < laps->n ? laps->kept_end : 0;
	laps->kept_end = laps->kept + laps->n / 5;
	if (laps->kept_end > laps->n)
		laps->kept_end = laps->n;
	free_all(laps->blocks, laps->kept);
	free_all_backwards(laps->blocks + laps->kept_end, laps->n - laps->kept_end);
	laps->at = 0;
}

#endif
