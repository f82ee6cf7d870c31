/* SPDX-License-Identifier: BSD-2-Clause */
/* The public functions of pinalloc.h: check arguments, and translate options and errors. */
#include <config.h>

#define PINALLOC_API PIN_EXPORT
#include "allocator/base.h"
#include "preload/pinalloc.h"

#include "allocator/start.h"
#include "allocator/live.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "preload/report/collect.h"
#include "preload/report/record.h"
#include "preload/report/write.h"
#include "regpool/domain.h"
#include "regpool/mr.h"
#include "regpool/state.h"
#include "regpool/userpool.h"

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
	struct pinalloc_stats all;

	/* A program that asks will allocate, and must not see a heap without addresses. */
	pin_start_heap();
	all = (struct pinalloc_stats){
		.live = pin_live_now(),
		.mapped = pin_span_bytes(),
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
		.live_peak_since_mark = pin_live_recent(false).bytes,
	};
	if (size > sizeof all)
		size = sizeof all;
	memcpy(stats, &all, size);
	return (int)size;
}

int pinalloc_mark(const char *name)
{
	int error = pin_report_mark(name);

	if (error)
		pin_warn_once("pinalloc_mark(\"%s\"): there are %d phases already; this and "
			      "all further ones count as one",
			      name, PIN_PHASES);
	pin_record_note(true);
	return error;
}

int pinalloc_report(const char *path)
{
	return pin_report_write(path);
}

/* --- pools ------------------------------------------------------------------------ */

#define ALL_FLAGS (PINALLOC_POOL_GROWS | PINALLOC_POOL_ON_NODE)

/* Options of a later version may be longer than these, if what these lack is not used. */
static bool read_options(struct pinalloc_pool_options *options,
			 const struct pinalloc_pool_options *given, size_t size)
{
	size_t known = size < sizeof *options ? size : sizeof *options;

	memset(options, 0, sizeof *options);
	memcpy(options, given, known);
	for (size_t i = known; i < size; i++)
		if (((const char *)given)[i])
			return false;
	return options->bytes && !(options->flags & ~ALL_FLAGS) &&
	       (!options->page_size || options->page_size == PINALLOC_PAGES_HUGE ||
		options->page_size == PINALLOC_PAGES_GIGANTIC) &&
	       (!(options->flags & PINALLOC_POOL_ON_NODE) || pin_os_has_node(options->node));
}

static void *fail(int error)
{
	errno = error;
	return NULL;
}

struct pinalloc_pool *pinalloc_pool_create(const struct pinalloc_pool_options *given,
					   size_t size)
{
	struct pinalloc_pool_options options;
	struct pin_userpool_options wanted;
	struct pin_userpool *pool;
	size_t page;
	int error;

	if (!given || !read_options(&options, given, size))
		return fail(EINVAL);
	page = options.page_size ? options.page_size : PIN_GRANULE;
	wanted = (struct pin_userpool_options){
		.need = {.n_bytes = PIN_ALIGN_UP(options.bytes, page),
			 .page_size = options.page_size,
			 .node = options.flags & PINALLOC_POOL_ON_NODE ? options.node
								       : PIN_NODE_HERE},
		.n_threads = options.threads,
		.grows = options.flags & PINALLOC_POOL_GROWS,
		.on_segment = options.on_segment,
		.arg = options.arg,
	};
	error = wanted.need.n_bytes ? pin_userpool_create(&wanted, &pool) : -ENOMEM;
	return error ? fail(-error) : (struct pinalloc_pool *)pool;
}

void *pinalloc_pool_alloc(struct pinalloc_pool *pool, size_t size, size_t alignment)
{
	void *slice;
	int error;

	if (PIN_UNLIKELY(!pool || alignment & (alignment - 1)))
		return fail(EINVAL);
	error = pin_userpool_alloc((struct pin_userpool *)pool, size, alignment, &slice);
	return PIN_LIKELY(!error) ? slice : fail(-error);
}

int pinalloc_pool_free(struct pinalloc_pool *pool, void *slice)
{
	if (!slice)
		return 0;
	return pool ? pin_userpool_free((struct pin_userpool *)pool, slice) : -EINVAL;
}

int pinalloc_pool_destroy(struct pinalloc_pool *pool)
{
	return pool ? pin_userpool_destroy((struct pin_userpool *)pool) : 0;
}
