/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/segment.h"
#include "allocator/live.h"
#include "allocator/os.h"
#include "allocator/pages.h"
#include "allocator/reserve.h"
#include "allocator/span.h"
#include "allocator/start.h"

static bool add_span(void *start, const struct pin_segment_need *need)
{
	uint32_t node = need->node == PIN_NODE_HERE ? pin_os_node() : need->node;
	bool added;

	pin_mutex_lock(&pin_map.lock);
	added = pin_span_add((uintptr_t)start, need->n_bytes, node);
	pin_mutex_unlock(&pin_map.lock);
	if (added)
		pin_runs_out += (int64_t)(need->n_bytes >> PIN_UNIT_SHIFT);
	return added;
}

/*
 * Of the system's pool of huge pages. They cannot replace memory that the heap has, which may
 * be registered, so they get addresses of their own, which are lost if there are too few.
 */
static void *take_hugetlb(const struct pin_segment_need *need)
{
	uintptr_t start;

	if (pin_os_hugetlb_free(need->page_size) < need->n_bytes / need->page_size)
		return NULL;
	/* A granule is left out behind them, as between spans. */
	start = pin_reserve_carve(need->n_bytes + need->page_size);
	if (!start)
		return NULL;
	start = PIN_ALIGN_UP(start, need->page_size);
	if (pin_os_commit_hugetlb((void *)start, need->n_bytes, need->page_size))
		return NULL;
	return add_span((void *)start, need) ? (void *)start : NULL;
}

static void *take_run(const struct pin_segment_need *need)
{
	struct pin_run_need run = {
		.n_pages = (uint32_t)(need->n_bytes >> PIN_UNIT_SHIFT),
		.alignment = (uint32_t)(PIN_GRANULE >> PIN_UNIT_SHIFT),
		.node = need->node,
		.only = need->node != PIN_NODE_HERE,
	};
	size_t n_used;
	uint32_t page = pin_run_take(&run, &n_used);

	return page ? pin_page_at(page) : NULL;
}

void *pin_segment_take(struct pin_segment_need *need)
{
	void *start = NULL;

	PIN_ASSERT(!(need->n_bytes % PIN_GRANULE));
	if (!pin_start_heap() || !pin_pages_for(need->n_bytes))
		return NULL;
	if (need->page_size)
		start = take_hugetlb(need);
	if (!start) {
		start = take_run(need);
		if (start && need->page_size) {
			pin_os_advise(start, need->n_bytes, PIN_HUGE_PAGES);
			need->page_size = PIN_GRANULE;
		}
	}
	if (!start)
		return NULL;
	pin_page_set_length(pin_page_of(start), pin_pages_for(need->n_bytes));
	pin_page_set_kind(pin_page_of(start), PIN_KIND_SLICE);
	need->node = pin_span_find(start, 1)->node;
	/* What it is used for is counted by its owner. */
	pin_live_count(-(int64_t)need->n_bytes);
	return start;
}

void pin_segment_give(void *segment, size_t n_bytes)
{
	uint32_t page = pin_page_of(segment);

	pin_page_set_kind(page, PIN_KIND_NONE);
	pin_run_give(page, (uint32_t)(n_bytes >> PIN_UNIT_SHIFT));
	pin_live_count((int64_t)n_bytes);
}
