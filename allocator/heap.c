/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/heap.h"
#include "allocator/flag.h"
#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/locks.h"
#include "allocator/log.h"
#include "allocator/runs.h"
#include "allocator/sites.h"
#include "allocator/span.h"
#include "allocator/start.h"

/* --- start ------------------------------------------------------------------------- */

#define SPARE (64 * PIN_KIB)

PIN_WRITTEN_FIRST static void *_Atomic spare;

static bool keep_spare(void)
{
	size_t n_used;

	spare = pin_large_alloc(SPARE, 1, &n_used);
	return spare;
}

void pin_heap_give_spare(void)
{
	void *block = atomic_exchange(&spare, NULL);

	/* Another free() of the process does not know it. */
	if (block)
		pin_large_free(block);
}

/* Before fork(): no other thread may hold these locks while the process is copied. */
static void lock_all(void)
{
	pin_sites_lock();
	pin_runs_take_lock();
}

static void unlock_all(void)
{
	pin_runs_release_lock();
	pin_sites_unlock();
}

PIN_WRITTEN_FIRST static _Atomic bool is_ready;

static PIN_COLD bool start(void)
{
	if (!pin_start_memory())
		return false;
	pin_locks_set_own(lock_all, unlock_all);
	is_ready = true;
	if (!keep_spare())
		pin_error(PIN_SAYS_NO_MEMORY ": raise ulimit -v and ulimit -d");
	pin_live_skip_growth();
	return true;
}

bool pin_start_heap(void)
{
	PIN_WRITTEN_FIRST static struct pin_flag lock;
	bool is_started;

	if (PIN_LIKELY(is_ready))
		return true;
	/* Threads may allocate with a malloc of the program's own until they call this. */
	pin_flag_lock(&lock);
	is_started = is_ready || start();
	pin_flag_unlock(&lock);
	return is_started;
}

/* --- statistics -------------------------------------------------------------------- */

void pin_heap_stats(struct pin_heap_stats *stats)
{
	stats->live = pin_live_now();
	stats->large = (size_t)pin_live_large;
	stats->mapped = pin_span_bytes();
	/* Other threads may have freed more than is counted yet. */
	if (stats->live > stats->mapped)
		stats->live = stats->mapped;
}
