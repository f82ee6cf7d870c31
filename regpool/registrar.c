/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Only what is in memory is registered ahead: registering anything else would make it
 * resident, and decide its memory node, before its user has. The kernel does not tell when
 * that is so; the thread looks when the heap has grown, when somebody has registered something,
 * and from time to time, more and more seldom.
 */
#include <config.h>

#include "regpool/registrar.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "regpool/choice.h"
#include "regpool/domain.h"
#include "regpool/keys.h"
#include "regpool/pool.h"
#include "regpool/thread.h"

#include <pthread.h>
#include <string.h>

/* Between two looks. Beyond the last there are none until something happens. */
#define FIRST_PAUSE_MS 4
#define LAST_PAUSE_MS  4096

/* At most so small a share of its time the thread looks, but it rests no longer than that. */
#define SHARE_OF_TIME 128

/* Memory that is being filled would be registered piece by piece: that waits so long. */
#define QUIET_MS 50

static _Atomic uint32_t events;

/* Lock-free: by the time something is done it is looked at again. */
static bool is_covered(void *keys, size_t granule)
{
	return pin_keys_covering(keys, (void *)pin_granule_start(granule)) != PIN_NO_ENTRY;
}

/* The next resident memory in a cell that nothing has, behind another; empty at its end. */
static struct pin_range next_stretch(struct pin_class *keys, struct pin_range cell,
				     struct pin_range last)
{
	for (uintptr_t p = last.end; p < cell.end; p += PIN_GRANULE) {
		struct pin_range none = {p, p}, rest = {p, cell.end};
		struct pin_range range = pin_choice_around(none, rest, is_covered, keys);

		if (range.end > p)
			return range;
	}
	return (struct pin_range){cell.end, cell.end};
}

/* Whether all of a range is known to be in memory, by whoever has looked. */
static bool is_resident(struct pin_range range)
{
	struct pin_range none = {range.start, range.start};

	return pin_choice_around(none, range, NULL, NULL).end == range.end;
}

/* With the domain's lock; a domain without a PD is not armed. */
static bool is_worked_on(struct pin_class *keys)
{
	return keys->armed && keys->eager;
}

/*
 * Registers one range. The domain's lock is let go in between, so that a PD can be deallocated
 * after one at the latest. A failure ends working ahead for this class, and so does that
 * something had to give way, or the two would chase each other; memory is then registered when
 * it is asked for. Returns whether it goes on.
 */
static bool register_stretch(struct pin_domain *domain, struct pin_class *keys,
			     struct pin_range range)
{
	bool goes_on;

	pthread_mutex_lock(&domain->lock);
	/* All of it may be another's by now. */
	goes_on = is_worked_on(keys) && !pin_pool_off() && !pin_pool.evicted &&
		  pin_keys_prepare_ahead(domain, keys, range);
	if (!goes_on)
		keys->eager = false;
	pthread_mutex_unlock(&domain->lock);
	return goes_on;
}

/*
 * A cell that is whole gets one memory region, once, for ranges across those it has. Until
 * then only what none has is registered, when it does not become more any longer.
 */
static bool register_cell(struct pin_domain *domain, struct pin_class *keys,
			  struct pin_range cell, bool is_quiet)
{
	struct pin_range range = {cell.start, cell.start};
	bool goes_on = true;

	if (is_resident(cell))
		return register_stretch(domain, keys, cell);
	while (is_quiet && goes_on &&
	       (range = next_stretch(keys, cell, range)).start < cell.end)
		goes_on = register_stretch(domain, keys, range);
	return goes_on;
}

static void register_span(struct pin_domain *domain, struct pin_class *keys,
			  const struct pin_span *span, bool is_quiet)
{
	struct pin_range all = pin_range_of_span(span), first, cell;

	/* A cell may end behind the span as it was: it grows. */
	for (uintptr_t p = all.start; p < all.end; p = cell.end) {
		first = (struct pin_range){p, p + PIN_GRANULE};
		cell = pin_choice_tile(span, first, keys->cell);
		if (!register_cell(domain, keys, cell, is_quiet))
			return;
	}
}

/* Whether it is worked on; what its users had kept so far goes. */
static bool begin_class(struct pin_domain *domain, struct pin_class *keys)
{
	bool eager;

	pthread_mutex_lock(&domain->lock);
	eager = is_worked_on(keys);
	if (eager)
		pin_keys_sweep(domain, keys);
	pthread_mutex_unlock(&domain->lock);
	return eager;
}

static void register_class(struct pin_domain *domain, struct pin_class *keys, bool is_quiet)
{
	if (!begin_class(domain, keys))
		return;
	for (uint32_t i = 0; i < pin_span_count(); i++)
		register_span(domain, keys, pin_span_get(i), is_quiet);
}

static void register_all(bool is_quiet)
{
	for (uint32_t i = 0; i < pin_domain_count(); i++)
		for (int kind = 0; kind < PIN_CLASSES; kind++)
			register_class(pin_domain_at(i), &pin_domain_at(i)->classes[kind],
				       is_quiet);
}

/* How many granules are newly seen to be in memory; and whether all there are have been. */
static size_t look(bool *is_complete)
{
	size_t n_new = 0;

	*is_complete = true;
	for (uint32_t i = 0; i < pin_span_count(); i++) {
		struct pin_range range = pin_range_of_span(pin_span_get(i));

		if (range.end > range.start && !pin_granules_reach(range.end))
			n_new += pin_granules_look(range);
		*is_complete &= is_resident(range);
	}
	return n_new;
}

/*
 * How long to wait after a look for something to happen: twice as long as the last time,
 * unless something has happened or is new; for ever when all is in memory.
 */
static uint64_t next_pause(uint64_t last, bool is_quiet, bool is_complete)
{
	if (is_quiet && (is_complete || last > LAST_PAUSE_MS))
		return UINT64_MAX;
	return is_quiet && last ? 2 * last : FIRST_PAUSE_MS;
}

/* Whatever happens, so long is not looked again after a look of so many nanoseconds. */
static uint64_t least_pause(uint64_t took_ns)
{
	uint64_t ms = took_ns * SHARE_OF_TIME / 1000000;

	if (ms < FIRST_PAUSE_MS)
		return FIRST_PAUSE_MS;
	return ms < LAST_PAUSE_MS ? ms : LAST_PAUSE_MS;
}

/* Whether nothing was new for a while. The heap that is there at first need not wait. */
static bool has_become_quiet(size_t n_new)
{
	static uint64_t last_new_ns;
	static bool has_looked;
	uint64_t now = pin_os_now_ns();

	if (n_new && has_looked)
		last_new_ns = now;
	has_looked = true;
	return now - last_new_ns >= QUIET_MS * UINT64_C(1000000);
}

static void *run(void *unused)
{
	bool is_complete, is_quiet;
	uint64_t pause = 0;

	for (uint32_t seen = 0, now = 0;; seen = now) {
		uint64_t began = pin_os_now_ns(), least;

		now = atomic_load(&events);
		is_quiet = has_become_quiet(look(&is_complete));
		least = least_pause(pin_os_now_ns() - began);
		register_all(is_quiet);
		pin_os_sleep_ms(least);
		pause = next_pause(now == seen ? pause : 0, is_quiet, is_complete);
		pin_os_wait_ms(&events, now, pause);
	}
	return unused;
}

static void start(void)
{
	int error = pin_thread_start(run, NULL, "pinalloc");

	if (error)
		pin_warn("cannot start the registration thread: %s; memory is registered when "
			 "it is first asked for",
			 strerrordesc_np(error));
	else
		pin_span_subscribe(pin_registrar_wake);
}

void pin_registrar_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, start);
	pin_registrar_wake();
}

void pin_registrar_wake(void)
{
	atomic_fetch_add(&events, 1);
	pin_os_wake(&events);
}
