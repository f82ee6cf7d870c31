/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/heap.h"
#include "allocator/jemalloc.h"
#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/span.h"

void pin_heap_stats(struct pin_heap_stats *stats)
{
	stats->live = pin_live_now();
	stats->mapped = pin_span_bytes();
	/* Other threads may have freed more than is counted yet. */
	if (stats->live > stats->mapped)
		stats->live = stats->mapped;
}

#define SPARE (64 * PIN_KIB)

PIN_WRITTEN_FIRST static void *_Atomic spare;

bool pin_heap_keep_spare(void)
{
	size_t n_used;

	spare = pin_large_alloc(SPARE, 1, true, &n_used);
	return spare;
}

void pin_heap_give_spare(void)
{
	void *block = atomic_exchange(&spare, NULL);

	/* Another free() of the process does not know it. */
	if (block)
		pin_large_free(block);
}

void pin_heap_print(void (*write)(void *arg, const char *text), void *arg)
{
	malloc_stats_print(write, arg, "a");
}
