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
#include "regpool/choice.h"
#include "regpool/fork.h"
#include "regpool/keys.h"
#include "regpool/segments.h"
#include "regpool/state.h"
#include "regpool/evict.h"
#include "regpool/threads.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* Pauses between looks. After the last one the thread sleeps until something happens. */
#define FIRST_PAUSE_MS 4
#define LAST_PAUSE_MS  4096

/*
 * The pause after a look is at least so many times as long as the processor time it took to
 * look, and to register, but not longer than LAST_PAUSE_MS.
 */
#define TIMES_LOOKING	  64
#define TIMES_REGISTERING 2

/*
 * Memory that is being filled would be registered piece by piece. So what is not a whole cell
 * waits until no page became resident for so long.
 */
#define QUIET_NS 50000000ull

/* One look at the whole heap. */
struct look {
	bool is_quiet; /* no page became resident for QUIET_NS before it */
	bool has_more; /* something was registered, or a set is not known to be in use yet */
	size_t n_new;  /* granules newly seen to be resident */
	size_t cell;   /* size of cells */
	size_t spare;  /* bytes that may have been replaced in vain since the process began */
};

/*
 * After a registration that failed, or while memory regions are evicted, there is no room to
 * register ahead. It is tried again after some seconds: the registrar and eviction must not
 * undo each other's work all the time.
 */
#define RETRY_NS 16000000000ull

static uint64_t short_until_ns; /* until then nothing is registered ahead */
static uint64_t registering_ns; /* processor time that it has taken */

/* Other threads and processes may have the processors meanwhile. */
static uint64_t used_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

static bool is_short(void)
{
	static uint64_t seen; /* memory regions that were evicted */
	uint64_t now = pin_os_now_ns(), evicted = pin_state.evicted;

	if (evicted != seen)
		short_until_ns = now + RETRY_NS;
	seen = evicted;
	return now < short_until_ns;
}

/*
 * A domain without a PD is not armed.
 * What is registered ahead during fork() would be copied.
 */
static bool is_worked_on(const struct pin_access_set *set)
{
	return atomic_load_explicit(&set->armed, memory_order_acquire) &&
	       pin_access_set_is_in_use(set) && !pin_budget_is_tight() &&
	       !pin_fork_is_running() && !is_short();
}

/*
 * Registers one range. The domain's lock is released after each range, so that deallocating a
 * PD waits for one registration at most.
 */
static void register_range(struct pin_access_set *set, struct pin_range range)
{
	registering_ns -= used_ns();
	pthread_rwlock_rdlock(&set->domain->lock);
	/* The domain may have been disarmed, or be another PD's, by now. */
	if (is_worked_on(set) && !pin_state_off() && !pin_keys_create_ahead(set, range)) {
		/* What EIO has put out of use waits for a request: there may be others. */
		if (pin_access_set_is_in_use(set))
			short_until_ns = pin_os_now_ns() + RETRY_NS;
		else
			set->is_first = false;
	}
	pthread_rwlock_unlock(&set->domain->lock);
	registering_ns += used_ns();
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
 * Whether the memory regions that one over the range would replace may be: where blocks come
 * and go, and nobody makes requests, the same memory would be pinned again and again. What may
 * not is left to requests. Bytes count, in all sets together: of what no request has used since
 * it was registered, so many may be replaced, and a few times what requests have used. A much
 * longer one stays: without it each of its cells would be registered, and its block again.
 */
static bool may_replace(struct pin_access_set *set, struct pin_range range, size_t so_many)
{
	static size_t replaced, earned; /* bytes, so far */
	size_t unused = 0, used = 0, most = pin_range_length(range) * PIN_MUCH_LARGER;
	struct pin_entry *entry;
	struct pin_walk walk;

	pthread_mutex_lock(&set->lock);
	for (walk = pin_entries_walk(set, range); (entry = pin_entries_next(set, &walk));) {
		struct pin_region *region = &set->regions[entry - set->entries];

		if (entry->length <= most && pin_entry_is_idle(set, entry))
			*(region->used_at == region->made ? &unused : &used) += entry->length;
	}
	pthread_mutex_unlock(&set->lock);
	if (replaced + unused > so_many + earned + used * PIN_MUCH_LARGER)
		return false;
	replaced += unused;
	earned += used * PIN_MUCH_LARGER;
	return true;
}

/*
 * A cell that is completely resident gets one memory region. The halves, quarters, ... of
 * another one do once no more of it becomes resident, down to granules.
 */
static void register_cell(const struct look *look, struct pin_access_set *set,
			  struct pin_range cell, bool is_quiet)
{
	size_t length = pin_range_length(cell);
	uintptr_t middle;

	if (!is_worked_on(set) || pin_granules_are_bare(cell) || pin_keys_is_served(set, cell))
		return;
	if (length <= set->domain->max_mr_size && length <= pin_budget_limit() &&
	    pin_granules_are_resident(cell) && !pin_segments_meet(cell) &&
	    may_replace(set, cell, look->spare)) {
		register_range(set, cell);
	} else if (is_quiet && length > PIN_GRANULE) {
		middle = middle_of(cell);
		register_cell(look, set, (struct pin_range){cell.start, middle}, true);
		register_cell(look, set, (struct pin_range){middle, cell.end}, true);
	}
}

/*
 * Visits the cells of a span, from the last one down: the newest memory is likely to be
 * requested next, and the first request leaves its own surroundings to itself.
 */
static void visit_span(struct look *look, const struct pin_span *span)
{
	struct pin_cells cells = pin_cells_of(span, look->cell);
	struct pin_range cell = {cells.start, cells.end};

	if (cells.end <= cells.start || pin_granules_ensure(cells.end))
		return;
	look->n_new += pin_granules_probe(cell);
	while (pin_cells_next(&cells, &cell))
		for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
			register_cell(look, set, cell, look->is_quiet && !look->n_new);
}

static void register_segments(void)
{
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));) {
		struct pin_range piece = {0, 0};

		while (is_worked_on(set) && pin_segments_next_piece(piece.start, &piece))
			if (!pin_granules_any(piece, PIN_IS_UNPINNABLE))
				register_range(set, piece);
	}
}

/* Of the first set that was armed, a look counts as a request. */
static void count_look(struct look *look)
{
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
		if (set->armed && set->is_first && !pin_access_set_is_in_use(set)) {
			pin_access_set_count(set);
			look->has_more = true;
		}
}

/* In vain a quarter of the heap may be replaced, and a few times what requests waited for. */
static void look_at_all(struct look *look)
{
	uint64_t ahead = pin_state.ahead;

	count_look(look);
	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));) {
		pthread_rwlock_rdlock(&set->domain->lock);
		pin_entries_deregister_withdrawn(set);
		pthread_rwlock_unlock(&set->domain->lock);
	}
	pin_evict_excess(0);
	look->cell = pin_choice_cell_size(pin_budget_limit());
	look->spare = pin_span_bytes() / 4 + pin_state.awaited * PIN_MUCH_LARGER;
	register_segments();
	for (uint32_t i = pin_span_count(); i--;)
		visit_span(look, pin_span_get(i));
	look->has_more |= pin_state.ahead != ahead;
}

static void *run_ahead(void *unused)
{
	uint64_t pause = FIRST_PAUSE_MS, least, new_at = 0, retried_at = 0;

	for (uint32_t seen = 0, now = 0;; seen = now) {
		uint64_t began = used_ns(), registering = registering_ns;
		struct look look = {.is_quiet = pin_os_now_ns() - new_at >= QUIET_NS};

		now = pin_state_changes();
		look_at_all(&look);
		new_at = look.n_new ? pin_os_now_ns() : new_at;
		registering = registering_ns - registering;
		least = (used_ns() - began - registering) * TIMES_LOOKING / 1000000;
		least += registering * TIMES_REGISTERING / 1000000 + FIRST_PAUSE_MS;
		pin_os_sleep_ms(least < LAST_PAUSE_MS ? least : LAST_PAUSE_MS);
		/* Once there is room again it looks once more at least; at the end never. */
		if (is_short())
			pause = LAST_PAUSE_MS / 2;
		else if (now != seen || !look.is_quiet || look.n_new || look.has_more)
			pause = FIRST_PAUSE_MS;
		else
			pause = 2 * pause <= LAST_PAUSE_MS ? 2 * pause : UINT64_MAX;
		pin_state_await_change(now, pause);
		if (pause >= LAST_PAUSE_MS || pin_os_now_ns() - retried_at >= RETRY_NS) {
			pin_granules_forget(PIN_IS_UNPINNABLE);
			retried_at = pin_os_now_ns();
		}
	}
	return unused;
}

void pin_ahead_start(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool runs;
	int error = 0;

	pthread_mutex_lock(&lock);
	if (!runs)
		error = pin_thread_start(run_ahead, NULL, "pinalloc");
	runs = !error;
	pthread_mutex_unlock(&lock);
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
		pthread_rwlock_rdlock(&set->domain->lock);
		if (atomic_load_explicit(&set->armed, memory_order_acquire))
			pin_ahead_add_set(set);
		pthread_rwlock_unlock(&set->domain->lock);
	}
}
