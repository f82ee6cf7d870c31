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

/* The memory system is busy with so many; more are no faster. */
#define MOST_THREADS 8

static char *(*make)(size_t n_bytes);
static struct pin_range made; /* written once */

/* What one thread touches. */
struct part {
	struct pin_range range;
	pthread_t thread;
	bool started;
};

void pin_prefill_init(char *(*make_memory)(size_t n_bytes))
{
	make = make_memory;
}

static uint32_t node_of(struct pin_range range)
{
	return pin_span_find((void *)range.start, 1)->node;
}

static void *touch(void *arg)
{
	const struct part *part = arg;
	bool entered = pin_os_prefer_node(node_of(part->range));

	pin_os_touch((void *)part->range.start, pin_range_length(part->range));
	if (entered)
		pin_os_prefer_none();
	return NULL;
}

static void touch_all(struct pin_range range)
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
		parts[i].started = i &&
				   !pthread_create(&parts[i].thread, NULL, touch, &parts[i]);
	}
	for (size_t i = 0; i < n && parts[i].range.start; i++) {
		if (parts[i].started)
			pthread_join(parts[i].thread, NULL);
		else
			touch(&parts[i]);
	}
}

/* Blocks come from there, too, unless it is large: then it is registered as it is used. */
static struct pin_range with_what_was_there(struct pin_range range)
{
	const struct pin_span *span = pin_span_find((void *)range.start, 1);

	if (range.start - span->start <= pin_range_length(range))
		range.start = span->start;
	return range;
}

/* What may be pinned, or nothing: half of a promise would be none. */
static void prefill(void)
{
	size_t n = PIN_ALIGN_UP(pin_options.reserve, PIN_GRANULE);
	size_t limit = pin_budget_locked_limit(), pinned = pin_budget_pinned_limit();
	char *p = NULL;

	limit = limit < pinned ? limit : pinned;
	if (n <= limit)
		p = make(n);
	if (!p) {
		pin_warn("PINALLOC_RESERVE: no %s of heap are set apart: %s", PIN_SIZE(n),
			 n > limit ? "less may be pinned; raise ulimit -l or "
				     "PINALLOC_MAX_PINNED, or reserve less"
				   : "there is no memory for it; reserve less");
		return;
	}
	made = with_what_was_there((struct pin_range){(uintptr_t)p, (uintptr_t)p + n});
	touch_all(made);
}

/* A cell at a time, as the registrar does. */
static void register_made(struct pin_domain *domain, struct pin_class *keys)
{
	for (uintptr_t p = made.start, end; p < made.end; p = end) {
		end = pin_reserve.base + PIN_ALIGN_UP(p + 1 - pin_reserve.base, keys->cell);
		if (end > made.end)
			end = made.end;
		if (!pin_keys_prepare(domain, keys, (void *)p, end - p))
			return;
	}
}

void pin_prefill(struct pin_domain *domain, struct pin_class *keys)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (!pin_options.reserve || !make)
		return;
	pthread_once(&once, prefill);
	register_made(domain, keys);
}
