/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/heap.h"
#include "allocator/jemalloc.h"
#include "allocator/live.h"
#include "allocator/reserve.h"
#include "allocator/span.h"

#include <stdlib.h>

void pin_heap_stats(struct pin_heap_stats *stats)
{
	stats->live = pin_live_now();
	stats->mapped = pin_span_bytes();
	/* Other threads may have freed more than is counted yet. */
	if (stats->live > stats->mapped)
		stats->live = stats->mapped;
}

enum pin_heap_answer pin_heap_probe(void)
{
	void *volatile p = malloc(1); /* volatile, or the compiler would remove the call */
	enum pin_heap_answer answer = pin_reserve_contains(p) ? PIN_HEAP_OURS
							      : PIN_HEAP_FOREIGN;

	if (!p)
		return PIN_HEAP_NOTHING;
	free(p);
	return answer;
}

void pin_heap_print(void (*write)(void *arg, const char *text), void *arg)
{
	malloc_stats_print(write, arg, "a");
}
