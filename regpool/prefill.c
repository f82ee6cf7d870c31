/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/prefill.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "regpool/budget.h"
#include "regpool/choice.h"
#include "regpool/keys.h"
#include "regpool/thread.h"

#include <pthread.h>

/* More threads saturate the memory system and are no faster. */
#define MOST_THREADS 8

static char *(*make_memory)(size_t n_bytes);
static struct pin_range prefilled; /* written once */

/* The part that one thread touches. */
struct part {
	struct pin_range range;
	pthread_t thread;
	bool started;
};

void pin_prefill_init(char *(*make)(size_t n_bytes))
{
	make_memory = make;
}

static uint32_t node_of(struct pin_range range)
{
	return pin_span_find((void *)range.start, 1)->node;
}

static void *touch_part(void *arg)
{
	const struct part *part = arg;
	bool entered = pin_os_prefer_node(node_of(part->range));

	pin_os_touch((void *)part->range.start, pin_range_length(part->range));
	if (entered)
		pin_os_prefer_none();
	return NULL;
}

static void touch_in_threads(struct pin_range range)
{
	size_t n = pin_os_processors(), length;
	struct part parts[MOST_THREADS] = {0};

	n = n < MOST_THREADS ? n : MOST_THREADS;
	length = PIN_ALIGN_UP(pin_range_length(range) / n, PIN_GRANULE);
	for (size_t i = 0; i < n; i++) {
		struct pin_range rest = {range.start + i * length, range.end};

		if (rest.start >= rest.end)
			break;
		if (pin_range_length(rest) > length)
			rest.end = rest.start + length;
		parts[i].range = rest;
		parts[i].started = i && !pthread_create(&parts[i].thread, NULL, touch_part,
							&parts[i]);
	}
	for (size_t i = 0; i < n && parts[i].range.start; i++) {
		if (parts[i].started)
			pthread_join(parts[i].thread, NULL);
		else
			touch_part(&parts[i]);
	}
}

/*
 * New blocks also come from the start of the span, so that is included, unless it is large:
 * then it is registered as it is used.
 */
static struct pin_range extend_to_span_start(struct pin_range range)
{
	const struct pin_span *span = pin_span_find((void *)range.start, 1);

	if (range.start - span->start <= pin_range_length(range))
		range.start = span->start;
	return range;
}

/* All or nothing: part of the reserve would not keep the promise. */
static void make_and_touch(void)
{
	size_t n = PIN_ALIGN_UP(pin_options.prealloc, PIN_GRANULE);
	size_t limit = pin_budget_locked_limit(), pinned = pin_budget_pinned_limit();
	char *p = NULL;

	limit = limit < pinned ? limit : pinned;
	if (n <= limit)
		p = make_memory(n);
	if (!p) {
		pin_warn("PINALLOC_PREALLOC: %s of heap are not reserved: %s", PIN_SIZE(n),
			 n > limit ? "less may be pinned; raise ulimit -l or "
				     "PINALLOC_MAX_PINNED, or reserve less"
				   : "there is not enough memory; reserve less");
		return;
	}
	prefilled = extend_to_span_start((struct pin_range){(uintptr_t)p, (uintptr_t)p + n});
	touch_in_threads(prefilled);
}

/* One cell at a time, like the registrar. */
static void register_prefilled(struct pin_domain *domain, struct pin_access_set *set)
{
	for (uintptr_t p = prefilled.start, end; p < prefilled.end; p = end) {
		end = pin_reserve.base + PIN_ALIGN_UP(p + 1 - pin_reserve.base, set->cell);
		if (end > prefilled.end)
			end = prefilled.end;
		if (!pin_keys_prepare(domain, set, (void *)p, end - p))
			return;
	}
}

void pin_prefill(struct pin_domain *domain, struct pin_access_set *set)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (!pin_options.prealloc || !make_memory)
		return;
	pthread_once(&once, make_and_touch);
	register_prefilled(domain, set);
}
