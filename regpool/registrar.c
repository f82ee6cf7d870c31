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
#include "regpool/keys.h"
#include "regpool/places.h"
#include "regpool/pool.h"
#include "regpool/registry.h"
#include "regpool/thread.h"

#include <pthread.h>
#include <string.h>

/* Between two looks. Beyond the last there are none until something happens. */
#define FIRST_PAUSE_MS 4
#define LAST_PAUSE_MS  4096

/* At most so small a share of its time the thread looks, but it rests no longer than that. */
#define SHARE_OF_TIME 128

/*
 * Memory that is being filled would be registered piece by piece: that waits until nothing was
 * new for so long, but no longer than for the other.
 */
#define QUIET_MS 50
#define DUE_MS	 1000

/* Where more is not pinned two threads work, if there are processors for them. */
#define MUCH (512 * PIN_MIB)

/* One look at the whole heap. */
struct pass {
	bool is_due;   /* what is new need not wait */
	bool is_quiet; /* nothing was new for a while before it */
	unsigned n_parts;
	_Atomic size_t n_new; /* granules newly seen to be in memory */
	_Atomic uint64_t ns;  /* in looking, of all processors */
};

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
	return keys->armed && !keys->ahead;
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
	bool worked_on, goes_on;

	pthread_rwlock_rdlock(&domain->lock);
	/* All of it may be another's by now. */
	worked_on = is_worked_on(keys);
	goes_on = worked_on && !pin_pool_off() && !pin_pool.evicted &&
		  pin_keys_prepare_ahead(domain, keys, range);
	if (worked_on && !goes_on)
		keys->ahead = PIN_AHEAD_NEVER;
	pthread_rwlock_unlock(&domain->lock);
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

/* A chunk is as large as a cell can be. */
static void register_chunk(struct pin_domain *domain, struct pin_class *keys,
			   const struct pin_span *span, struct pin_range chunk, bool is_quiet)
{
	struct pin_range first, cell;

	for (uintptr_t p = chunk.start; p < chunk.end && !keys->ahead; p = cell.end) {
		first = (struct pin_range){p, p + PIN_GRANULE};
		cell = pin_choice_tile(span, first, keys->cell);
		if (!register_cell(domain, keys, cell, is_quiet))
			return;
	}
}

static void visit(struct pass *pass, const struct pin_span *span, struct pin_range chunk)
{
	uint64_t began = pin_os_now_ns();
	size_t n_new = pin_granules_look(chunk);
	bool is_quiet = pass->is_due || (pass->is_quiet && !n_new);

	atomic_fetch_add(&pass->ns, pin_os_now_ns() - began);
	atomic_fetch_add(&pass->n_new, n_new);
	for (uint32_t i = 0; i < pin_registry_count(); i++)
		for (struct pin_class *keys = NULL;
		     (keys = pin_class_next(pin_registry_at(i), keys));)
			register_chunk(pin_registry_at(i), keys, span, chunk, is_quiet);
}

/*
 * This part's chunks of a span, the last one first: memory that was made last is asked for
 * next, and what the first request has begun is left to that.
 */
static void visit_span(struct pass *pass, const struct pin_span *span, unsigned part)
{
	struct pin_range all = pin_range_of_span(span), chunk;

	if (all.end == all.start || pin_granules_reach(all.end))
		return;
	for (chunk = all; chunk.end > all.start; chunk.end = chunk.start) {
		size_t number = (chunk.end - 1 - pin_reserve.base) / PIN_CELL;

		chunk.start = pin_reserve.base + number * PIN_CELL;
		if (chunk.start < all.start)
			chunk.start = all.start;
		if (number % pass->n_parts == part)
			visit(pass, span, chunk);
	}
}

static void visit_part(void *pass, unsigned part)
{
	for (uint32_t i = pin_span_count(); i--;)
		visit_span(pass, pin_span_get(i), part);
}

/* What its users had kept so far goes. */
static void sweep(struct pin_domain *domain)
{
	pthread_rwlock_rdlock(&domain->lock);
	for (struct pin_class *keys = NULL; (keys = pin_class_next(domain, keys));)
		if (keys->armed)
			pin_places_sweep(domain, keys, (struct pin_range){0, 0});
	pthread_rwlock_unlock(&domain->lock);
}

static void do_pass(struct pass *pass)
{
	bool is_much = pin_span_bytes() > pin_pool.pinned + MUCH;

	for (uint32_t i = 0; i < pin_registry_count(); i++)
		sweep(pin_registry_at(i));
	pass->n_new = pass->ns = 0;
	pass->n_parts = is_much && pin_os_processors() > 1 ? 2 : 1;
	if (pass->n_parts > 1)
		pin_thread_halve(visit_part, pass);
	else
		visit_part(pass, 0);
}

/* Whether all of the heap is known to be in memory. */
static bool is_all_resident(void)
{
	for (uint32_t i = 0; i < pin_span_count(); i++)
		if (!is_resident(pin_range_of_span(pin_span_get(i))))
			return false;
	return true;
}

/*
 * How long to wait after a look for something to happen: twice as long as the last time,
 * unless something has happened or is to be done; for ever when all is in memory.
 */
static uint64_t next_pause(uint64_t last, bool is_done)
{
	if (is_done && (is_all_resident() || last > LAST_PAUSE_MS))
		return UINT64_MAX;
	return is_done && last ? 2 * last : FIRST_PAUSE_MS;
}

/* Whatever happens, so long is not looked again after that took so many nanoseconds. */
static uint64_t least_pause(uint64_t ns)
{
	uint64_t ms = ns * SHARE_OF_TIME / 1000000;

	if (ms < FIRST_PAUSE_MS)
		return FIRST_PAUSE_MS;
	return ms < LAST_PAUSE_MS ? ms : LAST_PAUSE_MS;
}

static bool has_passed(uint64_t since_ns, uint64_t ms)
{
	return pin_os_now_ns() - since_ns >= ms * 1000000;
}

/* As far as it was looked at. */
static bool is_all_registered(const struct pass *pass)
{
	return pass->is_due || (pass->is_quiet && !pass->n_new);
}

static void *run(void *unused)
{
	/* The first pass is due: the heap that is there need not wait. */
	struct pass pass = {.is_due = true};
	uint64_t pause = 0, new_at = 0, waits_from = 0;

	for (uint32_t seen = 0, now = 0;; seen = now) {
		now = pin_pool_changes();
		pass.is_quiet = has_passed(new_at, QUIET_MS);
		do_pass(&pass);
		if (pass.n_new)
			new_at = pin_os_now_ns();
		if (is_all_registered(&pass))
			waits_from = 0;
		else if (!waits_from)
			waits_from = new_at;
		pin_os_sleep_ms(least_pause(pass.ns));
		pause = next_pause(now == seen ? pause : 0, pass.is_quiet && !pass.n_new);
		pin_pool_await_change(now, pause);
		pass.is_due = waits_from && has_passed(waits_from, DUE_MS);
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
		pin_span_subscribe(pin_pool_changed);
}

void pin_registrar_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, start);
	pin_pool_changed();
}
