/* SPDX-License-Identifier: BSD-2-Clause */
/* The public functions of pinalloc.h. */
#include <config.h>

#define PINALLOC_API PIN_EXPORT
#include "allocator/base.h"
#include "preload/pinalloc.h"

#include "allocator/blocks.h"
#include "allocator/start.h"
#include "allocator/live.h"
#include "allocator/span.h"
#include "preload/report/write.h"
#include "regpool/arm.h"
#include "regpool/mr.h"
#include "regpool/state.h"

#include <errno.h>
#include <string.h>

#define SAME_PLACE(field) \
	(offsetof(struct pinalloc_key, field) == offsetof(struct pin_mr_key, field))

_Static_assert(sizeof(struct pinalloc_key) == sizeof(struct pin_mr_key) && SAME_PLACE(lkey) &&
		       SAME_PLACE(rkey) && SAME_PLACE(start) && SAME_PLACE(length),
	       "a look-up writes into the caller's structure");

int pinalloc_lookup(struct ibv_pd *pd, const void *addr, size_t len, unsigned access,
		    struct pinalloc_key *key)
{
	return pin_mr_lookup(pd, addr, len, access, (struct pin_mr_key *)key);
}

int pinalloc_enable(struct ibv_pd *pd, unsigned access)
{
	return pin_domain_enable(pd, access);
}

int pinalloc_disable(struct ibv_pd *pd)
{
	return pin_domain_disarm(pd);
}

int pinalloc_stats(struct pinalloc_stats *stats, size_t size)
{
	struct pin_live_stats heap;
	struct pinalloc_stats all;

	/* A program that asks will allocate, and must not see a heap without addresses. */
	pin_start_heap();
	pin_live_stats(&heap);
	all = (struct pinalloc_stats){
		.live = heap.live,
		.mapped = heap.mapped,
		.growth_steps = pin_span_steps(),
		.pinned = pin_state.pinned,
		.pinned_peak = pin_state.pinned_peak,
		.mr_created = pin_state.created,
		.mr_destroyed = pin_state.destroyed,
		.served = pin_state_requests(PIN_SERVED),
		.passed_through = pin_state_passed(),
		.refused = pin_state.refused,
		.evicted = pin_state.evicted,
		.registration_ns = pin_state.ns,
		.live_peak = pin_live_peak().bytes,
		.registered = pin_state.registered,
		.registered_peak = pin_state.registered_peak,
		.mr_ahead = pin_state.ahead,
	};
	if (size > sizeof all)
		size = sizeof all;
	memcpy(stats, &all, size);
	return (int)size;
}

int pinalloc_report(const char *path)
{
	return pin_report_write(path);
}
