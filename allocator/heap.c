/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/heap.h"
#include "allocator/live.h"
#include "allocator/region.h"

#include <stdlib.h>

#include <jemalloc/jemalloc.h>

/*
 * jemalloc reads this after the user's MALLOC_CONF, /etc/malloc.conf and the
 * program's malloc_conf, so for the keys it names none of them can undo the
 * promise (jemalloc 5.3.0, src/jemalloc.c, malloc_conf_init). Why each:
 *   retain                   freed ranges are kept and reused
 *   dirty/muzzy_decay_ms 0   freed pages coalesce at once instead of piling up
 *                            in a cache that splits badly; releasing them is
 *                            refused below, so this costs no system call
 *   lg_extent_max_active_fit any free range may serve a smaller request
 *   oversize_threshold       no arena of its own for large blocks
 *   dss                      no sbrk, which is outside the reserve
 *   hpa, background_thread   work that gives memory back
 *   san_guard_*              unreadable pages between blocks cannot be pinned
 */
extern const char *malloc_conf_2_conf_harder;
const char *malloc_conf_2_conf_harder =
	"retain:true,dirty_decay_ms:-1,muzzy_decay_ms:0,lg_extent_max_active_fit:63,"
	"oversize_threshold:0,dss:disabled,hpa:false,background_thread:false,"
	"san_guard_small:0,san_guard_large:0";

void pin_heap_stats(struct pin_heap_stats *stats)
{
	stats->live = pin_live_now();
	stats->mapped = pin_region_bytes();
	/* What has been freed may not be known yet. */
	if (stats->live > stats->mapped)
		stats->live = stats->mapped;
}

bool pin_heap_answers_malloc(void)
{
	void *volatile p = malloc(1);
	bool inside = p && pin_reserve_contains(p);

	free(p);
	return inside;
}

bool pin_heap_has_memory(void)
{
	void *volatile p = malloc(1); /* volatile: or the compiler leaves it out */
	bool has = p;

	free(p);
	return has;
}

void pin_heap_print(void (*write)(void *arg, const char *text), void *arg)
{
	malloc_stats_print(write, arg, "a");
}
