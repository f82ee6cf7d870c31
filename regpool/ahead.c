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
#include "allocator/os.h"
#include "allocator/span.h"
#include "regpool/budget.h"
#include "regpool/fork.h"
#include "regpool/keys.h"
#include "regpool/segments.h"
#include "regpool/state.h"
#include "regpool/evict.h"
#include "regpool/register.h"
#include "regpool/threads.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

/* Pauses between looks. After the last one the thread sleeps until something happens. */
#define FIRST_PAUSE_MS 4
#define LAST_PAUSE_MS  4096

/*
 * The pause after a look is at least TIMES_LOOKING times the processor time of the look, and
 * TIMES_REGISTERING times that of registering, but not longer than LAST_PAUSE_MS.
 */
#define TIMES_LOOKING	  64
#define TIMES_REGISTERING 2

/*
 * Memory that is being filled would be registered piece by piece. So what is not a whole cell
 * waits until no page became resident for so long.
 */
#define QUIET_NS 50000000ull

/* --- cells ------------------------------------------------------------------------- */

#define CELLS 512

/* A cell is at most this fraction of what may be registered. */
#define PARTS_OF_LIMIT 8

size_t pin_cells_size(size_t limit)
{
	size_t cell = PIN_GRANULE, heap = pin_span_bytes();

	while (cell < PIN_CELL && cell * CELLS < heap && 2 * cell <= limit / PARTS_OF_LIMIT)
		cell *= 2;
	return cell;
}

/* The last multiple of a size, as counted from the heap's first address, that is not above. */
static uintptr_t border_at(uintptr_t addr, size_t unit)
{
	return pin_reserve.base + PIN_ALIGN_DOWN(addr - pin_reserve.base, unit);
}

/* A multiple of the unit in about the middle, or a border of the block that crosses that. */
static uintptr_t middle_of(struct pin_range part, size_t unit)
{
	uintptr_t half = border_at(part.start + pin_range_length(part) / 2 + unit - 1, unit),
		  last = border_at(part.end - 1, unit), middle = half < last ? half : last;
	struct pin_range block = pin_block_at_or_below(middle - 1, part.start);

	if (block.end <= middle || block.end > part.end)
		return middle;
	if (block.start > part.start)
		return block.start;
	return block.end < part.end ? block.end : middle;
}

/* Whether one block has all of it, which nothing but a memory region of that size serves. */
static bool is_block(struct pin_range part)
{
	struct pin_range block = pin_block_at_or_below(part.start, part.start);

	return block.start == part.start && block.end >= part.end;
}

/* Whether one block has all of it, or no border is in it, but one across which its first block
 * lies, if that is short. */
static bool is_cell(struct pin_range part, size_t size)
{
	struct pin_range first = pin_block_at_or_below(part.start, part.start);
	uintptr_t last = border_at(part.end - 1, size);
	bool is_short = pin_range_length(part) <= size && pin_range_length(first) < PIN_GRANULE;

	return last <= part.start || (first.start == part.start && first.end > last &&
				      (first.end >= part.end || is_short));
}

void pin_cells_visit(struct pin_range part, size_t size,
		     void (*visit)(struct pin_range cell, void *arg), void *arg)
{
	uintptr_t middle;

	if (!pin_granules_any(part, PIN_IS_TOUCHED))
		return;
	if (is_cell(part, size)) {
		visit(part, arg);
		return;
	}
	middle = middle_of(part, size);
	pin_cells_visit((struct pin_range){middle, part.end}, size, visit, arg);
	pin_cells_visit((struct pin_range){part.start, middle}, size, visit, arg);
}

/* --- looks ------------------------------------------------------------------------- */

/* What could not be pinned is tried again. */
#define RETRY_NS 16000000000ull

/* Pieces of memory beside what is in use are at least so long. */
#define LEAST_PIECE (16 * PIN_KIB)

/*
 * Where blocks come and go all the time, or are being filled, most of what is registered for
 * them, or for parts of them, would be of no use soon: so that is done once they have been the
 * same for a while, or after so long.
 */
#define SAME_NS	   500000000ull
#define LONGEST_NS 4000000000ull

static uint64_t registering_ns; /* processor time that it has taken */

/* Other threads and processes may have the processors meanwhile. */
#define used_ns() pin_os_time_ns(CLOCK_THREAD_CPUTIME_ID)

/*
 * A domain without a PD is not armed.
 * What is registered ahead during fork() would be copied.
 */
static bool is_worked_on(const struct pin_access_set *set)
{
	return atomic_load_explicit(&set->armed, memory_order_acquire) &&
	       pin_access_set_is_in_use(set) && !pin_budget_is_tight() && !pin_forks_running &&
	       pin_allowance_left(set, 1);
}

/* Whether the limits that are known leave room for so much. */
static bool has_room(const struct pin_access_set *set, size_t length, size_t paid)
{
	return pin_allowance_left(set, (int64_t)length - (int64_t)paid) &&
	       pin_allowance_has_room(set->domain->adapter, length);
}

/*
 * Registers one range. The domain's lock is released after each range, so that deallocating a
 * PD waits for one registration at most. After an error that says nothing of room, or of this
 * range alone, the set waits for a request: there may be others.
 */
static void register_range(struct pin_access_set *set, struct pin_range range, size_t paid)
{
	int error = 0;

	registering_ns -= used_ns();
	pin_domain_lock(set->domain, pthread_rwlock_rdlock);
	/* The domain may have been disarmed, or be another PD's, by now. */
	if (is_worked_on(set) && !pin_state_off() &&
	    has_room(set, pin_range_length(range), paid))
		error = pin_keys_create_ahead(set, range);
	if (error && error != EFAULT && error != PIN_TOO_LARGE && error != PIN_OVER_LIMIT &&
	    !pin_ibverbs_out_of_room(error)) {
		set->is_first &= pin_access_set_is_in_use(set);
		set->n_needed = PIN_IN_USE - 1;
	}
	pin_domain_unlock(set->domain);
	registering_ns += used_ns();
}

/*
 * Whether a cell is registered as one, not in parts. Of what is in use no more than a quarter
 * is registered twice; of what is idle half, or as much as a block needs that lies across the
 * borders of memory regions, which were those of blocks that have gone.
 */
static bool is_one(struct pin_range cell, struct pin_shares shares)
{
	size_t length = pin_range_length(cell);

	return shares.used <= length / 4 && (shares.idle <= length / 2 || is_block(cell));
}

/*
 * A cell that is completely resident gets one memory region. The halves, quarters, ... of
 * another one do once no more of it becomes resident: down to granules, and further beside what
 * is registered.
 */
static void register_cell(struct pin_look *look, struct pin_access_set *set,
			  struct pin_range cell, bool is_part)
{
	size_t length = pin_range_length(cell);
	struct pin_shares shares;
	uintptr_t middle;
	bool fits;

	if (!is_worked_on(set) || !pin_granules_any(cell, PIN_IS_TOUCHED) ||
	    pin_keys_covers(set, cell, &shares))
		return;
	fits = is_one(cell, shares);
	if (fits && length <= set->domain->max_mr_size && length <= pin_budget_limit() &&
	    pin_granules_are_resident(cell) && !pin_segments_meet(cell)) {
		if ((!shares.idle && !is_part) || look->mends)
			register_range(set, cell, shares.paid);
		else
			look->gaps += has_room(set, length, shares.paid) ? cell.start + length
									 : 0;
	} else if (look->is_quiet && !look->n_new &&
		   length > (fits ? PIN_GRANULE : LEAST_PIECE)) {
		middle = middle_of(cell, length > PIN_GRANULE ? PIN_GRANULE : PIN_PAGE);
		is_part |= is_block(cell);
		register_cell(look, set, (struct pin_range){cell.start, middle}, is_part);
		register_cell(look, set, (struct pin_range){middle, cell.end}, is_part);
	}
}

static void register_in_all(struct pin_range cell, void *look)
{
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
		register_cell(look, set, cell, false);
}

static void register_segments(void)
{
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));) {
		struct pin_range piece = {0, 0};

		while (is_worked_on(set) && pin_segments_next_piece(piece.start, &piece))
			if (!pin_granules_any(piece, PIN_IS_UNPINNABLE))
				register_range(set, piece, 0);
	}
}

/* What is more than there is room for is deregistered, as the program may need that. */
static void give_back(struct pin_access_set *set)
{
	for (uint32_t i = set->n_entries;
	     i >= PIN_LISTS && !pin_allowance_has_room(set->domain->adapter, 0); i--)
		if (set->regions[i].is_ahead && pin_entry_is_idle(set, &set->entries[i]))
			pin_entry_evict(set, &set->entries[i]);
}

static void look_at_all(struct pin_look *look)
{
	uint64_t ahead = pin_state.ahead;
	bool is_on = false;

	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));) {
		/* Of the first set that was armed, a look counts as a request. */
		if (set->armed && set->is_first && !pin_access_set_is_in_use(set)) {
			pin_access_set_count(set);
			look->has_more = true;
		}
		pin_domain_lock(set->domain, pthread_rwlock_rdlock);
		pin_entries_deregister_withdrawn(set);
		pin_domain_unlock(set->domain);
		give_back(set);
		is_on |= is_worked_on(set);
	}
	pin_evict_excess(0);
	look->cell = pin_cells_size(pin_budget_limit());
	register_segments();
	for (uint32_t i = is_on ? pin_span_count() : 0; i--;) {
		struct pin_range span = pin_range_of_span(pin_span_get(i));

		if (span.end <= span.start || pin_granules_ensure(span.end))
			continue;
		look->n_new += pin_granules_probe(span);
		pin_cells_visit(span, look->cell, register_in_all, look);
	}
	look->has_more |= pin_state.ahead != ahead;
}

struct pin_pace pin_pace_after(struct pin_pace pace, const struct pin_look *look, uint64_t now)
{
	pace.new_at = look->n_new ? now : pace.new_at;
	pace.gaps_at = pace.gaps && !pace.mends ? pace.gaps_at : look->at;
	pace.same_at = look->gaps == pace.gaps ? pace.same_at : look->at;
	pace.gaps = look->gaps;
	pace.mends = pace.gaps && (look->at - pace.same_at >= SAME_NS ||
				   look->at - pace.gaps_at >= LONGEST_NS);
	if (!look->is_quiet || look->n_new || look->has_more || pace.mends)
		pace.pause_ms = FIRST_PAUSE_MS;
	else if (pace.gaps)
		pace.pause_ms = LAST_PAUSE_MS / 8;
	else
		pace.pause_ms = 2 * pace.pause_ms <= LAST_PAUSE_MS ? 2 * pace.pause_ms
								   : UINT64_MAX;
	return pace;
}

static void *run_ahead(void *unused)
{
	struct pin_pace pace = {.pause_ms = FIRST_PAUSE_MS};
	uint64_t least, retried_at = 0;

	for (uint32_t seen = 0, now = 0;; seen = now) {
		uint64_t began = used_ns(), registering = registering_ns, at = pin_os_now_ns();
		struct pin_look look = {.at = at,
					.is_quiet = at - pace.new_at >= QUIET_NS,
					.mends = pace.mends};

		now = pin_state_changes();
		look_at_all(&look);
		look.has_more |= now != seen;
		pace = pin_pace_after(pace, &look, pin_os_now_ns());
		registering = registering_ns - registering;
		least = (used_ns() - began - registering) * TIMES_LOOKING / 1000000;
		least += registering * TIMES_REGISTERING / 1000000 + FIRST_PAUSE_MS;
		pin_os_sleep_ms(least < LAST_PAUSE_MS ? least : LAST_PAUSE_MS);
		pin_state_await_change(now, pace.pause_ms);
		if (pace.pause_ms >= LAST_PAUSE_MS ||
		    pin_os_now_ns() - retried_at >= RETRY_NS) {
			pin_granules_forget(PIN_IS_UNPINNABLE);
			retried_at = pin_os_now_ns();
		}
	}
	return unused;
}

void pin_ahead_start(void)
{
	static struct pin_mutex lock = {.rank = PIN_RANK_OUTER};
	static bool runs;
	int error;

	PIN_LOCKED(&lock);
	error = pin_thread_start(&runs, run_ahead, NULL, "pinalloc");
	if (error)
		pin_warn("cannot start the registration thread: %s; memory is registered when "
			 "it is first requested",
			 strerrordesc_np(error));
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
	segment->is_ready = true;
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));) {
		/* The PD must not be deallocated meanwhile. */
		pin_domain_lock(set->domain, pthread_rwlock_rdlock);
		if (atomic_load_explicit(&set->armed, memory_order_acquire))
			pin_ahead_add_set(set);
		pin_domain_unlock(set->domain);
	}
}
