/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Only resident memory is registered ahead. Registering other memory would make it resident,
 * and place it on a memory node, before its user does. The kernel does not say when memory
 * becomes resident, so the thread looks when the heap has grown, when something was registered,
 * and otherwise from time to time at growing intervals.
 */
#include <config.h>

#include "regpool/ahead.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "regpool/budget.h"
#include "regpool/choice.h"
#include "regpool/fork.h"
#include "regpool/keys.h"
#include "regpool/entries.h"
#include "regpool/state.h"
#include "regpool/evict.h"
#include "regpool/threads.h"

#include <pthread.h>
#include <string.h>

/* Pauses between looks. After the last one the thread sleeps until something happens. */
#define FIRST_PAUSE_MS 4
#define LAST_PAUSE_MS  4096

/*
 * Looking in vain takes at most this share of the thread's time, unless the pause would be
 * longer than LAST_PAUSE_MS.
 */
#define SHARE_OF_TIME 128

/*
 * Memory that is being filled would be registered piece by piece. So what is not a whole cell
 * waits until no page became resident for so long.
 */
#define QUIET_NS 50000000ull

/* One look at the whole heap. */
struct look {
	bool is_quiet;	  /* no page became resident for QUIET_NS before it */
	bool has_room;	  /* there was no shortage for some time */
	bool has_new_set; /* one is not known to be in use yet */
	bool has_cut;	  /* memory regions were replaced, as blocks have changed */
	size_t n_new;	  /* granules newly seen to be resident */
	uint64_t ns; /* nanoseconds spent looking in vain, and some of those spent to replace */
};

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
 * register ahead. It is tried again after some seconds: the registrar and eviction must not
 * undo each other's work all the time.
 */
#define RETRY_NS 16000000000ull

static struct {
	_Atomic bool has_failed;
	uint64_t evicted;  /* memory regions that were, when last looked */
	uint64_t until_ns; /* time until which nothing is registered ahead */
} shortage;

static bool is_short(void)
{
	return shortage.has_failed || pin_state.evicted != shortage.evicted;
}

/* At the beginning of a look. */
static void note_shortage(void)
{
	if (!is_short())
		return;
	shortage.until_ns = pin_os_now_ns() + RETRY_NS;
	shortage.evicted = pin_state.evicted;
	shortage.has_failed = false;
}

/*
 * Registers one range. The domain's lock is released after each range, so that deallocating a
 * PD waits for one registration at most. Returns whether to continue.
 */
static bool register_range(struct pin_access_set *set, struct pin_range range)
{
	bool goes_on = false;

	pthread_rwlock_rdlock(&set->domain->lock);
	/* The domain may have been disarmed, or be another PD's, by now. */
	if (is_worked_on(set) && !pin_state_off() && !is_short()) {
		goes_on = pin_keys_create_ahead(set, range);
		shortage.has_failed |= !goes_on;
	}
	pthread_rwlock_unlock(&set->domain->lock);
	return goes_on;
}

/* Whether it may become one memory region. */
static bool is_whole(struct pin_access_set *set, struct pin_range range)
{
	size_t length = pin_range_length(range);

	return length <= set->domain->max_mr_size && length <= pin_budget_limit() &&
	       pin_granules_are_resident(range) && !pin_segments_meet(range);
}

/* A border of granules in about the middle, or of the block that crosses that. */
static uintptr_t middle_of(struct pin_range cell)
{
	uintptr_t end = PIN_ALIGN_DOWN(cell.end - 1, PIN_GRANULE),
		  half = PIN_ALIGN_UP(cell.start + pin_range_length(cell) / 2, PIN_GRANULE),
		  middle = half < end ? half : end;
	struct pin_range block = pin_block_at_or_below(middle - 1, cell.start);

	if (block.end <= middle || block.end > cell.end)
		return middle;
	if (block.start > cell.start)
		return block.start;
	return block.end < cell.end ? block.end : middle;
}

/*
 * A cell that is completely resident gets one memory region. The halves, quarters, ... of
 * another one do once no more of it becomes resident, down to granules.
 */
static void register_cell(struct pin_access_set *set, struct pin_range cell, bool is_quiet)
{
	uintptr_t middle;

	if (!is_worked_on(set) || is_short() || pin_keys_is_served(set, cell))
		return;
	if (is_whole(set, cell)) {
		register_range(set, cell);
	} else if (is_quiet && pin_range_length(cell) > PIN_GRANULE) {
		middle = middle_of(cell);
		register_cell(set, (struct pin_range){cell.start, middle}, true);
		register_cell(set, (struct pin_range){middle, cell.end}, true);
	}
}

static void visit(struct look *look, struct pin_range cell)
{
	uint64_t began = pin_os_now_ns();
	size_t n_new = pin_granules_probe(cell);

	look->ns += n_new ? 0 : pin_os_now_ns() - began;
	look->n_new += n_new;
	if (look->has_room)
		for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
			register_cell(set, cell, look->is_quiet && !n_new);
}

/*
 * Visits the cells of a span, from the last one down: the newest memory is likely to be
 * requested next, and the first request leaves its own surroundings to itself.
 */
static void visit_span(struct look *look, const struct pin_span *span)
{
	struct pin_cells cells = pin_cells_of(span, pin_choice_cell_size(pin_budget_limit()));
	struct pin_range cell;

	if (cells.end > cells.start && !pin_granules_ensure(cells.end))
		while (pin_cells_next(&cells, &cell))
			visit(look, cell);
}

static void register_segments(void)
{
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));) {
		struct pin_range piece = {0, 0};

		while (is_worked_on(set) && pin_segments_next_piece(piece.start, &piece) &&
		       (pin_granules_any_unpinnable(piece) || register_range(set, piece)))
			;
	}
}

/* Of the first set that was armed, a look counts as a request. */
static void count_look(struct look *look)
{
	look->has_new_set = false;
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
		if (set->armed && set->is_first && set->is_ahead &&
		    !pin_access_set_is_in_use(set)) {
			pin_access_set_count(set);
			look->has_new_set = true;
		}
}

/* Blocks that come and go all the time should not keep a processor busy. */
#define PART_OF_CUTTING 32

static void look_at_all(struct look *look)
{
	uint64_t began, destroyed;

	count_look(look);
	for (uint32_t i = 0; i < pin_domain_count(); i++)
		pin_entries_purge_domain(&pin_domains[i]);
	pin_evict_excess(0);
	note_shortage();
	look->has_room = pin_os_now_ns() >= shortage.until_ns;
	look->n_new = look->ns = 0;
	if (look->has_room)
		register_segments();
	began = pin_os_now_ns();
	destroyed = pin_state.destroyed;
	for (uint32_t i = pin_span_count(); i--;)
		visit_span(look, pin_span_get(i));
	look->has_cut = pin_state.destroyed != destroyed;
	if (look->has_cut)
		look->ns += (pin_os_now_ns() - began) / PART_OF_CUTTING;
}

/*
 * Milliseconds to wait for something to happen after a look: twice the last pause, or the
 * shortest if something happened or work is left; at the end for ever. What could not be
 * registered is tried again.
 */
static uint64_t next_pause(uint64_t last, bool is_done)
{
	if (!is_done || !last || is_short())
		return FIRST_PAUSE_MS;
	if (shortage.until_ns > pin_os_now_ns())
		return LAST_PAUSE_MS;
	return 2 * last <= LAST_PAUSE_MS ? 2 * last : UINT64_MAX;
}

/* The pause to make in any case after a look that took `ns` nanoseconds. */
static uint64_t least_pause(uint64_t ns)
{
	uint64_t ms = ns * SHARE_OF_TIME / 1000000;

	if (ms < FIRST_PAUSE_MS)
		return FIRST_PAUSE_MS;
	return ms < LAST_PAUSE_MS ? ms : LAST_PAUSE_MS;
}

static void *run_ahead(void *unused)
{
	uint64_t pause = 0, new_at = 0, retried_at = 0;
	struct look look;

	for (uint32_t seen = 0, now = 0;; seen = now) {
		now = pin_state_changes();
		look.is_quiet = pin_os_now_ns() - new_at >= QUIET_NS;
		look_at_all(&look);
		if (look.n_new)
			new_at = pin_os_now_ns();
		pin_os_sleep_ms(least_pause(look.ns));
		pause = next_pause(now == seen ? pause : 0, look.is_quiet && !look.n_new &&
								    !look.has_new_set &&
								    !look.has_cut);
		pin_state_await_change(now, pause);
		if (pause >= LAST_PAUSE_MS || pin_os_now_ns() - retried_at >= RETRY_NS) {
			pin_granules_retry_unpinnable();
			retried_at = pin_os_now_ns();
		}
	}
	return unused;
}

static bool start_thread(void)
{
	int error = pin_thread_start(run_ahead, NULL, "pinalloc");

	if (error)
		pin_warn("cannot start the registration thread: %s; memory is registered when "
			 "it "
			 "is first requested",
			 strerrordesc_np(error));
	return !error;
}

bool pin_ahead_start(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool runs;
	bool is_there;

	pthread_mutex_lock(&lock);
	is_there = runs = runs || start_thread();
	pthread_mutex_unlock(&lock);
	return is_there;
}

/* A piece that cannot be registered says nothing of those above it. */
void pin_ahead_add_set(struct pin_access_set *set)
{
	struct pin_range piece = {0, 0};

	while (pin_segments_next_piece(piece.start, &piece))
		pin_keys_create(set, (void *)piece.start, pin_range_length(piece));
}

void pin_ahead_add_segment(struct pin_segment *segment)
{
	/* First, so that sets that are armed from now on have it. */
	pin_segments_note_ready(segment);
	for (uint32_t i = 0; i < pin_domain_count(); i++) {
		struct pin_domain *domain = &pin_domains[i];

		/* The PD must not be deallocated meanwhile. */
		pthread_rwlock_rdlock(&domain->lock);
		for (struct pin_access_set *set = NULL;
		     (set = pin_access_set_next(domain, set));)
			if (atomic_load_explicit(&set->armed, memory_order_acquire))
				pin_ahead_add_set(set);
		pthread_rwlock_unlock(&domain->lock);
	}
}
