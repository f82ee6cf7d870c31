/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Only resident memory is registered ahead. Registering other memory would make it resident,
 * and place it on a memory node, before its user does. The kernel does not say when memory
 * becomes resident, so the thread looks when the heap has grown, when something was registered,
 * and otherwise from time to time at growing intervals.
 */
#include <config.h>

#include "regpool/registrar.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "regpool/budget.h"
#include "regpool/choice.h"
#include "regpool/fork.h"
#include "regpool/keys.h"
#include "regpool/places.h"
#include "regpool/pool.h"
#include "regpool/registry.h"
#include "regpool/room.h"
#include "regpool/segments.h"
#include "regpool/thread.h"

#include <pthread.h>
#include <string.h>

/* Pauses between looks. After the last one the thread sleeps until something happens. */
#define FIRST_PAUSE_MS 4
#define LAST_PAUSE_MS  4096

/*
 * Looking takes at most this share of the thread's time, unless the pause would be longer than
 * LAST_PAUSE_MS.
 */
#define SHARE_OF_TIME 128

/*
 * Memory that is being filled would be registered piece by piece. So registration waits until
 * no page became resident for QUIET_MS, but no longer than DUE_MS.
 */
#define QUIET_MS 50
#define DUE_MS	 1000

/* One pass over the whole heap. */
struct pass {
	bool is_due;	  /* new resident memory is registered at once */
	bool is_quiet;	  /* no page became resident for QUIET_MS before it */
	bool has_room;	  /* there was no shortage for some time */
	bool has_new_set; /* one is not known to be in use yet */
	size_t n_new;	  /* granules newly seen to be resident */
	uint64_t ns;	  /* nanoseconds spent looking */
};

/*
 * Whether a memory region has all of a granule. Reads without a lock: the result is checked
 * again under it.
 */
static bool is_covered(void *set, size_t granule)
{
	void *start = (void *)pin_granule_start(granule);
	uint32_t number = pin_keys_covering(set, start);

	return number && pin_entry_covers(pin_place(set, number), start, PIN_GRANULE);
}

/*
 * The next range of a cell, after `last`, that is resident and not registered; empty at the end
 * of the cell.
 */
static struct pin_range next_stretch(struct pin_access_set *set, struct pin_range cell,
				     struct pin_range last)
{
	for (uintptr_t p = last.end; p < cell.end; p += PIN_GRANULE) {
		struct pin_range none = {p, p}, rest = {p, cell.end};
		struct pin_range range = pin_choice_around(none, rest, is_covered, set);

		if (range.end > p)
			return range;
	}
	return (struct pin_range){cell.end, cell.end};
}

/* Whether all of a range was seen to be resident. */
static bool is_resident(struct pin_range range)
{
	struct pin_range none = {range.start, range.start};

	return pin_choice_around(none, range, NULL, NULL).end == range.end;
}

/*
 * A domain without a PD is not armed.
 * What is registered ahead during fork() would be copied.
 */
static bool is_worked_on(const struct pin_access_set *set)
{
	return atomic_load_explicit(&set->armed, memory_order_acquire) && set->is_ahead &&
	       pin_access_set_is_in_use(set) && !pin_budget_is_tight() &&
	       !pin_fork_is_running();
}

/*
 * A registration that fails, or memory regions that were evicted, show that there is no room to
 * register ahead. It is tried again after a second and, as long as that is so, after 2, 4, ...
 * seconds: the registrar and eviction must not undo each other's work all the time.
 */
#define FIRST_RETRY_MS 1000
#define LAST_RETRY_MS  64000

static struct {
	_Atomic bool has_failed;
	uint64_t evicted;  /* memory regions that were, when last looked */
	uint64_t retry_ms; /* how long not to register after the last shortage */
	uint64_t until_ns; /* time until which nothing is registered ahead */
} shortage;

static bool is_short(void)
{
	return shortage.has_failed || pin_pool.evicted != shortage.evicted;
}

/* At the beginning of a pass. */
static void note_shortage(void)
{
	uint64_t now = pin_os_now_ns();

	if (!is_short())
		return;
	if (!shortage.retry_ms || now > shortage.until_ns + LAST_RETRY_MS * 1000000ull)
		shortage.retry_ms = FIRST_RETRY_MS;
	else if (shortage.retry_ms < LAST_RETRY_MS)
		shortage.retry_ms *= 2;
	shortage.until_ns = now + shortage.retry_ms * 1000000;
	shortage.evicted = pin_pool.evicted;
	shortage.has_failed = false;
}

/* What could not be pinned for a reason that is not known. */
static void retry_unpinnable(void)
{
	static uint64_t until_ns;
	uint64_t now = pin_os_now_ns();

	if (now < until_ns)
		return;
	pin_granules_retry_unpinnable();
	until_ns = now + LAST_RETRY_MS * 1000000ull;
}

/*
 * Registers one range. The domain's lock is released after each range, so that deallocating a
 * PD waits for one registration at most. Returns whether to continue.
 */
static bool register_stretch(struct pin_access_set *set, struct pin_range range)
{
	bool goes_on = false;

	pthread_rwlock_rdlock(&set->domain->lock);
	/* The domain may have been disarmed, or be another PD's, by now. */
	if (is_worked_on(set) && !pin_pool_off() && !is_short()) {
		goes_on = pin_keys_prepare_ahead(set, range);
		shortage.has_failed |= !goes_on;
	}
	pthread_rwlock_unlock(&set->domain->lock);
	return goes_on;
}

/*
 * A cell that is completely resident gets one memory region over all of it, and the beginning
 * of the next one, or over the piece of a segment that it is in. Until then only what is not
 * registered yet is, once no more of it becomes resident.
 */
static bool register_cell(struct pin_access_set *set, const struct pin_span *span,
			  struct pin_range cell, bool is_quiet)
{
	struct pin_range range = {cell.start, cell.start};
	bool goes_on = true;

	if (pin_segments_is_being_made(cell))
		return true;
	if (pin_segments_find_piece(cell, &range))
		return register_stretch(set, range);
	if (is_resident(cell)) {
		range = pin_choice_overlap(span, cell);
		return range.end > cell.end || is_quiet ? register_stretch(set, range) : true;
	}
	while (is_quiet && goes_on && (range = next_stretch(set, cell, range)).start < cell.end)
		goes_on = register_stretch(set, range);
	return goes_on;
}

/* A chunk is as large as the largest cell. */
static void register_chunk(struct pin_access_set *set, const struct pin_span *span,
			   struct pin_range chunk, bool is_quiet)
{
	struct pin_range first, cell;
	size_t size;

	if (!is_worked_on(set))
		return;
	size = pin_choice_cell(pin_budget_limit(), set->domain->max_mr_size);
	size = pin_choice_cell_ahead(size);
	for (uintptr_t p = chunk.start; p < chunk.end && is_worked_on(set); p = cell.end) {
		first = (struct pin_range){p, p + PIN_GRANULE};
		cell = pin_choice_tile(span, first, size);
		if (!register_cell(set, span, cell, is_quiet))
			return;
	}
}

static void visit(struct pass *pass, const struct pin_span *span, struct pin_range chunk)
{
	uint64_t began = pin_os_now_ns();
	size_t n_new = pin_granules_probe(chunk);
	bool is_quiet = pass->is_due || (pass->is_quiet && !n_new);

	pass->ns += pin_os_now_ns() - began;
	pass->n_new += n_new;
	if (pass->has_room)
		for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
			register_chunk(set, span, chunk, is_quiet);
}

/*
 * Visits the chunks of a span, from the last one down: the newest memory is likely to
 * be requested next, and the first request leaves its own surroundings to itself.
 */
static void visit_span(struct pass *pass, const struct pin_span *span)
{
	struct pin_range all = pin_range_of_span(span), chunk;

	if (all.end == all.start || pin_granules_ensure(all.end))
		return;
	for (chunk = all; chunk.end > all.start; chunk.end = chunk.start) {
		size_t number = (chunk.end - 1 - pin_reserve.base) / PIN_CELL;

		chunk.start = pin_reserve.base + number * PIN_CELL;
		if (chunk.start < all.start)
			chunk.start = all.start;
		visit(pass, span, chunk);
	}
}

/* Of the first set that was armed, a look counts as a request. */
static void count_look(struct pass *pass)
{
	pass->has_new_set = false;
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
		if (set->armed && set->is_first && set->is_ahead &&
		    !pin_access_set_is_in_use(set)) {
			pin_access_set_count(set);
			pass->has_new_set = true;
		}
}

static void do_pass(struct pass *pass)
{
	count_look(pass);
	for (uint32_t i = 0; i < pin_registry_count(); i++)
		pin_places_sweep_domain(pin_registry_at(i));
	pin_room_trim();
	note_shortage();
	retry_unpinnable();
	pass->has_room = pin_os_now_ns() >= shortage.until_ns;
	pass->n_new = pass->ns = 0;
	for (uint32_t i = pin_span_count(); i--;)
		visit_span(pass, pin_span_get(i));
}

/* Whether all of the heap was seen to be resident. */
static bool is_all_resident(void)
{
	for (uint32_t i = 0; i < pin_span_count(); i++)
		if (!is_resident(pin_range_of_span(pin_span_get(i))))
			return false;
	return true;
}

/*
 * Milliseconds to wait for something to happen after a pass: twice the last pause, or the
 * shortest if something happened or work is left; for ever if all is resident.
 */
static uint64_t next_pause(uint64_t last, bool is_done)
{
	if (is_done && (is_all_resident() || last > LAST_PAUSE_MS))
		return UINT64_MAX;
	return is_done && last ? 2 * last : FIRST_PAUSE_MS;
}

/* If something could not be registered, it is tried again. */
static uint64_t pause_until_retry(uint64_t pause)
{
	uint64_t now = pin_os_now_ns(), left;

	if (is_short())
		return FIRST_RETRY_MS;
	left = shortage.until_ns > now ? (shortage.until_ns - now) / 1000000 + 1 : pause;
	return left < pause ? left : pause;
}

/* The pause to make in any case after a pass that took `ns` nanoseconds. */
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

/* Whether the pass has registered all that it saw. */
static bool is_all_registered(const struct pass *pass)
{
	return pass->is_due || (pass->is_quiet && !pass->n_new);
}

static void *run_registrar(void *unused)
{
	/* The existing heap is registered at once. */
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
		pause = next_pause(now == seen ? pause : 0,
				   pass.is_quiet && !pass.n_new && !pass.has_new_set);
		pin_pool_await_change(now, pause_until_retry(pause));
		pass.is_due = waits_from && has_passed(waits_from, DUE_MS);
	}
	return unused;
}

static bool start_thread(void)
{
	int error = pin_thread_start(run_registrar, NULL, "pinalloc");

	if (error)
		pin_warn("cannot start the registration thread: %s; memory is registered when "
			 "it "
			 "is first requested",
			 strerrordesc_np(error));
	else
		pin_span_subscribe(pin_pool_changed);
	return !error;
}

bool pin_registrar_start(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool runs;
	bool is_there;

	pthread_mutex_lock(&lock);
	is_there = runs = runs || start_thread();
	pthread_mutex_unlock(&lock);
	if (is_there)
		pin_pool_changed();
	return is_there;
}
