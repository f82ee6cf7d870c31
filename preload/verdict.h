/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a report says first, of one process or of all of a job: was every registration served,
 * what did never returning memory cost, how many page faults did the heap take, which limit was
 * nearest, and what is there beside the heap.
 */
#pragma once

#include "allocator/log.h"
#include "preload/figures.h"
#include "regpool/state.h"

/* The limits that a process may come near to. */
enum pin_limit {
	PIN_LIMIT_MEMLOCK,
	PIN_LIMIT_PINNED,
	PIN_LIMIT_CGROUP,
	PIN_LIMIT_RAM,
	PIN_LIMIT_HEAP,
	PIN_LIMITS
};
extern const struct pin_limit_row {
	enum pin_figure used, limit;
	const char *name, *cure;
} pin_limits[PIN_LIMITS];

/* What a process had of a limit. */
struct pin_limit_use {
	enum pin_limit which;
	int64_t used, limit; /* -1 if it is not known */
};

struct pin_verdict {
	size_t n_processes;
	int64_t figures[PIN_FIGURES]; /* sums, of properties the most; -1: none */
	int64_t reasons[PIN_REASONS]; /* requests by what became of them */
	/* What the heaps held beyond what was in use, in the mean over time; -1: not known. */
	int64_t mean_beyond;
	bool is_bound; /* of some process it is not known how much of the heap it touched */
	struct pin_limit_use nearest; /* of all processes; limit -1: none is known */
	/* Which process was nearest, has most beside the heap; "" for one. */
	char nearest_of[96], most_beside_of[96];
};

/*
 * The limit that a process was nearest to. A process that is above a limit is not bound by it,
 * but that memory.high of its control group slows it down.
 */
struct pin_limit_use pin_limit_nearest(const int64_t *figures);
bool pin_limit_is_nearer(struct pin_limit_use a, struct pin_limit_use b);

/* Bytes in memory beside the heap; -1 if that is not known. */
int64_t pin_verdict_beside(const int64_t *figures);

/* Writes the answers, each of one line or two, or of none. Async-signal-safe. */
void pin_verdict_write(const struct pin_verdict *verdict, struct pin_output *out);
