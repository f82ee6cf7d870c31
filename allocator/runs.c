/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/runs.h"
#include "allocator/fit.h"
#include "allocator/hooks.h"
#include "allocator/live.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/span.h"

#ifndef N_MAPS	   /* as where they are tried */
#define N_MAPS 256 /* maps beyond these are shared, also by nodes */
#endif
#define MANY_WAITS 16 /* after which a thread goes on to another map */
#define LOOKS	   16 /* at how many maps a request looks before it touches new memory */

struct pin_map {
	/* Written by those who hold the lock, and mostly by one thread. */
	_Alignas(64) struct pin_mutex lock;
	uint32_t waiting;	    /* the used run that was given last */
	_Atomic uint32_t n_waiting; /* pages */
	uint32_t node;
	struct pin_span *span;		      /* the one that grows, if any */
	_Atomic size_t n_all, n_used, n_bare; /* pages */
	/* Written by those who give without the lock. */
	_Alignas(64) _Atomic uint32_t given; /* runs, linked by their first pages */
	_Atomic uint32_t n_given;	     /* pages */
	_Alignas(64) struct pin_fit used;
	struct pin_fit bare;
};

struct run {
	uint32_t page, n_pages;
};

static struct pin_map maps[N_MAPS];
PIN_WRITTEN_FIRST static _Atomic uint32_t n_maps, next_map;
PIN_WRITTEN_FIRST static _Atomic bool has_nodes; /* maps of several */

_Static_assert(N_MAPS <= PIN_LIVE_LANES, "each map has a lane");

/* What the calling thread takes memory of. */
static __thread struct {
	struct pin_map *map;
	uint32_t node, n_waits, n_looks;
} own __attribute__((tls_model("initial-exec")));

#ifdef PIN_DEBUG
_Atomic uint64_t pin_runs_n_passed;

static void note_taker(const struct pin_map *map)
{
	static void *takers[N_MAPS]; /* under the locks of the maps */

	pin_runs_n_passed += takers[map - maps] != &own;
	takers[map - maps] = &own;
}
#else
#define note_taker(map) ((void)(map))
#endif

static void lock(struct pin_map *map)
{
	pin_mutex_lock(&map->lock);
	note_taker(map);
}

static bool trylock(struct pin_map *map)
{
	bool taken = pin_mutex_trylock(&map->lock);

	if (PIN_LIKELY(taken))
		note_taker(map);
	return taken;
}

static const struct pin_span *span_of(uint32_t page)
{
	return pin_span_find(pin_page_at(page), 1);
}

static uint16_t number_of(const struct pin_map *map)
{
	return (uint16_t)(map - maps);
}

static uint32_t end_of(const struct pin_span *span)
{
	return span ? pin_page_of((void *)(span->start + span->length - 1)) + 1 : 0;
}

/* A process with one thread has memory of the node where it began, as it would by itself. */
extern char __libc_single_threaded __attribute__((weak));

static bool has_one_thread(void)
{
	return &__libc_single_threaded && __libc_single_threaded;
}

static uint32_t node_here(void)
{
	return has_one_thread() && pin_span_count() ? pin_span_get(0)->node : pin_os_node();
}

/* --- runs ------------------------------------------------------------------------- */

static struct pin_fit *fit_of(struct pin_map *map, enum pin_run_state state)
{
	return state == PIN_STATE_FREE ? &map->used : &map->bare;
}

/* Adds n_pages to a count that is written under the lock only. */
static void count(_Atomic size_t *sum, size_t n_pages)
{
	atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + n_pages,
			      memory_order_relaxed);
}

static struct pin_map *map_at(uint32_t page)
{
	return &maps[pin_page_map(page)];
}

static inline void insert(struct pin_map *map, uint32_t page, uint32_t n_pages,
			  enum pin_run_state state)
{
	pin_assert_held(&map->lock);
	pin_page_set_length(page, n_pages);
	pin_page_set_length(page + n_pages - 1, n_pages);
	pin_page_set_tag(page + n_pages - 1, number_of(map), state);
	pin_page_set_tag(page, number_of(map), state);
	pin_fit_insert(fit_of(map, state), page);
	count(state == PIN_STATE_FREE ? &map->n_used : &map->n_bare, n_pages);
}

static inline void delete (struct pin_map *map, uint32_t page)
{
	uint32_t n_pages = pin_page(page)->length;
	enum pin_run_state state = pin_page_state(page);

	pin_assert_held(&map->lock);
	count(state == PIN_STATE_FREE ? &map->n_used : &map->n_bare, -(size_t)n_pages);
	pin_fit_delete(fit_of(map, state), page);
	pin_page_set_tag(page, number_of(map), PIN_STATE_NONE);
	pin_page_set_tag(page + n_pages - 1, number_of(map), PIN_STATE_NONE);
}

/* Whether the page begins or ends a free run of this state that the locked map has. */
static inline bool is_of(const struct pin_map *map, uint32_t page, enum pin_run_state state)
{
	return pin_page_tag(page) == ((unsigned)number_of(map) << 2 | state);
}

/* The length of the map's free run of this state that ends before a page of a span. */
static uint32_t before(const struct pin_map *map, const struct pin_span *span, uint32_t page,
		       enum pin_run_state state)
{
	return pin_page_at(page) != (void *)span->start && is_of(map, page - 1, state)
		       ? pin_page(page - 1)->length
		       : 0;
}

/* Of the one that begins there. */
static uint32_t behind(const struct pin_map *map, const struct pin_span *span, uint32_t page,
		       enum pin_run_state state)
{
	return page != end_of(span) && is_of(map, page, state) ? pin_page(page)->length : 0;
}

/* --- what others have given, and what waits --------------------------------------------- */

static void leave(struct pin_map *map, struct run run)
{
	uint32_t head = atomic_load_explicit(&map->given, memory_order_relaxed);

	pin_page_set_length(run.page, run.n_pages);
	atomic_fetch_add_explicit(&map->n_given, run.n_pages, memory_order_relaxed);
	do {
		pin_page(run.page)->children[0] = head;
	} while (!atomic_compare_exchange_weak_explicit(
		&map->given, &head, run.page, memory_order_release, memory_order_relaxed));
}

/* A page that ends a free run before these pages, or begins one behind them; 0 if there is
 * none. */
static inline uint32_t free_beside(const struct pin_span *span, const struct run *run,
				   enum pin_run_state state)
{
	uint32_t page = run->page, end = page + run->n_pages;

	if (end != end_of(span) && pin_page_state(end) == state)
		return end;
	return pin_page_at(page) != (void *)span->start && pin_page_state(page - 1) == state
		       ? page - 1
		       : 0;
}

/* Takes a run that the locked map may still have beside another one, and adds it to that. */
static void absorb(struct pin_map *map, uint32_t beside, enum pin_run_state state,
		   struct run *run)
{
	uint32_t n_pages, first;

	if (!is_of(map, beside, state))
		return;
	n_pages = pin_page(beside)->length;
	first = beside < run->page ? run->page - n_pages : beside;
	delete (map, first);
	run->n_pages += n_pages;
	run->page = first < run->page ? first : run->page;
}

/* The same, of a map that is not locked. False if its lock is taken, or its run longer. */
static bool absorb_of(struct pin_map *map, uint32_t beside, struct run *run)
{
	bool is_longer;

	if (!trylock(map))
		return false;
	is_longer = is_of(map, beside, PIN_STATE_FREE) &&
		    pin_page(beside)->length >= run->n_pages;
	if (!is_longer)
		absorb(map, beside, PIN_STATE_FREE, run);
	pin_map_unlock(map);
	return !is_longer;
}

/*
 * Free memory merges wherever it lies. A run that is beside a longer one of another map is left
 * to that map, which does the same; a shorter one is taken from the other map.
 */
static void give(struct pin_map *map, struct run run, enum pin_run_state state)
{
	const struct pin_span *span = span_of(run.page);
	struct pin_map *of = map;
	uint32_t beside;

	while ((beside = free_beside(span, &run, state))) {
		of = map_at(beside);
		if (of == map)
			absorb(map, beside, state, &run);
		else if (!absorb_of(of, beside, &run))
			break;
	}
	if (beside)
		leave(of, run);
	else
		insert(map, run.page, run.n_pages, state);
}

/*
 * The used run that was given last waits: a program that frees a block often requests as much
 * next, and gets this run. Whatever looks at a map puts the waiting run there first.
 */
static void put_waiting(struct pin_map *map)
{
	uint32_t n_pages = map->n_waiting;

	map->n_waiting = 0;
	if (n_pages)
		give(map, (struct run){map->waiting, n_pages}, PIN_STATE_FREE);
}

static bool take_waiting(struct pin_map *map, const struct pin_run_need *need)
{
	if (map->n_waiting != need->n_pages ||
	    pin_fit_aligned(map->waiting, need->alignment) != map->waiting)
		return false;
	map->n_waiting = 0;
	return true;
}

/* Puts in what others have given. */
static void collect(struct pin_map *map)
{
	uint32_t page, next;

	if (PIN_LIKELY(!atomic_load_explicit(&map->given, memory_order_relaxed)))
		return;
	put_waiting(map);
	page = atomic_exchange_explicit(&map->given, 0, memory_order_acquire);
	for (; page; page = next) {
		next = pin_page(page)->children[0];
		atomic_fetch_sub_explicit(&map->n_given, pin_page(page)->length,
					  memory_order_relaxed);
		give(map, (struct run){page, pin_page(page)->length}, PIN_STATE_FREE);
	}
}

/* --- maps and their threads ------------------------------------------------------------ */

/*
 * One of the maps of a node, by turns, or a new one, if there is none; also if the node's maps
 * are crowded, unless there are four times as many maps as processors.
 */
static struct pin_map *choose(uint32_t node, bool are_crowded)
{
	uint32_t most = are_crowded ? 4 * pin_os_processors() : 0, n;
	struct pin_map *map = NULL;

	pin_mutex_lock(&pin_growth_lock);
	n = n_maps;
	if (n >= most || n == N_MAPS)
		for (uint32_t i = 0; i < n && (!map || map->node != node); i++)
			map = &maps[next_map++ % n];
	if ((!map || map->node != node) && n < N_MAPS) {
		map = &maps[n];
		map->node = node;
		has_nodes |= node != maps->node;
		pin_live_use_lane(n);
		n_maps = n + 1;
	}
	pin_mutex_unlock(&pin_growth_lock);
	return map;
}

static struct pin_map *map_here(void)
{
	uint32_t node;

	if (PIN_LIKELY(own.map && has_one_thread()))
		return own.map;
	node = node_here();
	if (PIN_UNLIKELY(!own.map || own.node != node)) {
		own.map = choose(node, false);
		own.node = node;
	}
	return own.map;
}

static struct pin_map *lock_own(void)
{
	struct pin_map *map = map_here();

	if (PIN_LIKELY(trylock(map)))
		return map;
	if (++own.n_waits % MANY_WAITS == 0)
		own.map = map = choose(own.node, true);
	lock(map);
	return map;
}

struct pin_map *pin_map_lock(uint32_t page)
{
	struct run run = {page, pin_page(page)->length};
	uint32_t beside = free_beside(span_of(page), &run, PIN_STATE_FREE);
	struct pin_map *map = map_at(beside ? beside : page);

	lock(map);
	collect(map);
	put_waiting(map);
	return map;
}

void pin_map_unlock(struct pin_map *map)
{
	pin_mutex_unlock(&map->lock);
}

void pin_run_give(uint32_t page, uint32_t n_pages)
{
	struct pin_map *map = map_at(page);

	pin_page_set_tag(page, number_of(map), PIN_STATE_NONE);
	if (PIN_UNLIKELY(map != own.map)) {
		leave(map, (struct run){page, n_pages});
		return;
	}
	lock(map);
	put_waiting(map);
	map->waiting = page;
	map->n_waiting = n_pages;
	pin_map_unlock(map);
}

uint32_t pin_run_before(const struct pin_map *map, uint32_t page)
{
	return before(map, span_of(page), page, PIN_STATE_FREE);
}

uint32_t pin_run_at(const struct pin_map *map, uint32_t page)
{
	return behind(map, span_of(page - 1), page, PIN_STATE_FREE);
}

bool pin_run_fits(const struct pin_map *map, uint32_t n_pages)
{
	return pin_fit_find(&map->used, n_pages, 1);
}

/* Pages of a granule. */
#define TOLD_SHIFT (PIN_GRANULE_SHIFT - PIN_UNIT_SHIFT)

void pin_run_cut(struct pin_map *map, uint32_t page, uint32_t at, uint32_t n_pages,
		 size_t *n_used)
{
	uint32_t end = at + n_pages, used = at, next;
	enum pin_run_state state;

	for (; page < end; page = next) {
		state = pin_page_state(page);
		next = page + pin_page(page)->length;
		delete (map, page);
		if (page < at)
			insert(map, page, at - page, state);
		if (next > end)
			insert(map, end, next - end, state);
		if (state == PIN_STATE_FREE)
			used = next < end ? next : end;
	}
	*n_used = (size_t)(used - at) << PIN_UNIT_SHIFT;
	if (used < end && used >> TOLD_SHIFT != end >> TOLD_SHIFT)
		pin_hook(note_touched);
}

static inline uint32_t take_used(struct pin_map *map, const struct pin_run_need *need,
				 size_t *n_used)
{
	uint32_t page, at;

	*n_used = (size_t)need->n_pages << PIN_UNIT_SHIFT;
	if (take_waiting(map, need))
		return map->waiting;
	put_waiting(map);
	page = pin_fit_find(&map->used, need->n_pages, need->alignment);
	if (!page)
		return 0;
	at = (uint32_t)pin_fit_aligned(page, need->alignment);
	pin_run_cut(map, page, at, need->n_pages, n_used);
	return at;
}

/* --- growth ----------------------------------------------------------------------- */

static bool add_memory(struct pin_map *map, size_t n_bytes, uint32_t node)
{
	uint32_t page, end;
	char *p;

	n_bytes = PIN_ALIGN_UP(n_bytes, PIN_GRANULE);
	pin_mutex_lock(&pin_growth_lock);
	p = n_bytes ? pin_span_grow(&map->span, n_bytes, node) : NULL;
	pin_mutex_unlock(&pin_growth_lock);
	if (!p)
		return false;
	pin_live_growth += n_bytes;
	page = pin_page_of(p);
	end = page + (uint32_t)(n_bytes >> PIN_UNIT_SHIFT);
	/* The heap's first page is no memory: 0 is the number of none. */
	page = page ? page : 1;
	count(&map->n_all, end - page);
	give(map, (struct run){page, end - page}, PIN_STATE_BARE);
	return true;
}

/*
 * A map grows by at least a share of its size, so that steps are few; memory of a step that is
 * not used costs only addresses. The first step is at most a share of what the heap can ever
 * get, because tables need some too.
 */
#define FIRST_STEP	   (8 * PIN_MIB)
#define MOST_STEP	   (64 * PIN_MIB)
#define SHARE_OF_MAP	   8
#define MAX_SHARE_OF_LIMIT 16

static size_t min_step(const struct pin_map *map)
{
	size_t step = (map->n_all << PIN_UNIT_SHIFT) / SHARE_OF_MAP;
	size_t most = pin_reserve.memory / MAX_SHARE_OF_LIMIT;
	size_t first = FIRST_STEP < most ? FIRST_STEP : most;

	if (first < pin_options.top_pad)
		first = pin_options.top_pad;
	step = step > first ? step : first;
	return step < MOST_STEP ? step : MOST_STEP;
}

static bool grow_by_step(struct pin_map *map, size_t n_lacking, uint32_t node)
{
	size_t step = min_step(map);

	return (n_lacking < step && add_memory(map, step, node)) ||
	       add_memory(map, n_lacking, node);
}

/* --- new memory ------------------------------------------------------------------- */

/* Where a request can be served that needs new memory. */
struct place {
	uint32_t page; /* the first free run there, if any */
	uint64_t at;   /* aligned */
	uint64_t n_new;
};

/* From used memory on that may be there before the bare addresses. They may be too short. */
static struct place place_from(uint32_t from, uint32_t bare, const struct pin_run_need *need)
{
	uint64_t at = pin_fit_aligned(from, need->alignment), least = at > bare ? at : bare;
	uint64_t to = at + need->n_pages;

	return (struct place){at < bare ? from : bare, at, to > least ? to - least : 0};
}

static uint32_t take_place(struct pin_map *map, const struct pin_run_need *need,
			   const struct place *place, size_t *n_used)
{
	pin_run_cut(map, place->page, (uint32_t)place->at, need->n_pages, n_used);
	return (uint32_t)place->at;
}

/* In bare addresses that have room, and the longer of the used runs next to them. */
static struct place place_in_bare(const struct pin_map *map, const struct pin_run_need *need)
{
	uint32_t bare = pin_fit_find(&map->bare, need->n_pages, need->alignment), end;
	uint32_t n_before, n_behind;

	if (!bare)
		return (struct place){0, 0, UINT64_MAX};
	end = bare + pin_page(bare)->length;
	n_before = pin_run_before(map, bare);
	n_behind = pin_run_at(map, end);
	if (need->alignment > 1 || n_behind <= n_before || n_behind >= need->n_pages)
		return place_from(bare - n_before, bare, need);
	return (struct place){bare, end + n_behind - need->n_pages, need->n_pages - n_behind};
}

static struct place place_at_end(const struct pin_map *map, const struct pin_run_need *need)
{
	uint32_t end = end_of(map->span), n_bare, n_before;

	if (!end)
		return (struct place){0, 0, need->n_pages};
	n_bare = before(map, map->span, end, PIN_STATE_BARE);
	n_before = before(map, map->span, end - n_bare, PIN_STATE_FREE);
	return place_from(end - n_bare - n_before, end - n_bare, need);
}

/* The span may have to go on elsewhere, and then lack more. */
static uint32_t take_new(struct pin_map *map, const struct pin_run_need *need, uint32_t node,
			 size_t *n_used)
{
	struct place place, last;
	int64_t lacks;

	for (;;) {
		place = place_in_bare(map, need);
		last = place_at_end(map, need);
		if (place.n_new <= last.n_new)
			return take_place(map, need, &place, n_used);
		lacks = (int64_t)(last.at + need->n_pages - end_of(map->span));
		if (last.at && lacks <= 0)
			return take_place(map, need, &last, n_used);
		if (!grow_by_step(map, (size_t)lacks << PIN_UNIT_SHIFT, node))
			return place.page ? take_place(map, need, &place, n_used) : 0;
	}
}

/* A quarter of what was ever touched, in the maps of other nodes. */
static bool much_is_elsewhere(uint32_t node)
{
	size_t n_free = 0, n_touched = 0;

	for (uint32_t i = 0; i < n_maps; i++) {
		n_touched += maps[i].n_all - maps[i].n_bare;
		n_free += maps[i].node == node
				  ? 0
				  : maps[i].n_used + maps[i].n_waiting + maps[i].n_given;
	}
	return 4 * n_free > n_touched;
}

/* Without the lock: while it is taken, a run may be between two places. */
static bool may_have(const struct pin_map *map, uint32_t n_pages)
{
	return pin_mutex_is_taken(&map->lock) || map->n_given || map->n_waiting >= n_pages ||
	       pin_fit_may_have(&map->used, n_pages);
}

/* Runs up to this length go to another map whole, or threads would go on to share them. */
#define MOST_MOVED (2 * PIN_MIB >> PIN_UNIT_SHIFT)

/* More than is needed now, as long as the other map has more. */
static void move_some(struct pin_map *from, struct pin_map *to, uint32_t n_pages)
{
	size_t has = from->n_used, moved = 0;
	uint32_t page, length;

	for (int i = 0; i < 8 && to->n_used + moved < has - moved; i++) {
		page = pin_fit_find(&from->used, n_pages, 1);
		if (!page || pin_page(page)->length > MOST_MOVED)
			break;
		length = pin_page(page)->length;
		delete (from, page);
		leave(to, (struct run){page, length});
		moved += length;
		n_pages /= 2;
	}
}

/* Notes who has the pages, and gets them back. */
static uint32_t taken_by(const struct pin_map *map, uint32_t page)
{
	if (PIN_LIKELY(page))
		pin_page_set_tag(page, number_of(map), PIN_STATE_TAKEN);
	return page;
}

/* Used memory of a map, for another one or, of another node, for itself. No lock is held. */
static uint32_t take_from(struct pin_map *from, struct pin_map *to,
			  const struct pin_run_need *need, size_t *n_used)
{
	uint32_t page, at, end, length;
	bool is_whole;

	if (!may_have(from, need->n_pages))
		return 0;
	lock(from);
	collect(from);
	put_waiting(from);
	page = pin_fit_find(&from->used, need->n_pages, need->alignment);
	length = page ? pin_page(page)->length : 0;
	at = (uint32_t)pin_fit_aligned(page, need->alignment);
	end = at + need->n_pages;
	is_whole = page && length <= MOST_MOVED && to != from;
	if (is_whole) {
		delete (from, page);
		move_some(from, to, need->n_pages);
	} else if (page) {
		pin_run_cut(from, page, at, need->n_pages, n_used);
	}
	pin_map_unlock(from);
	if (is_whole && at > page)
		leave(to, (struct run){page, at - page});
	if (is_whole && page + length > end)
		leave(to, (struct run){end, page + length - end});
	*n_used = (size_t)need->n_pages << PIN_UNIT_SHIFT;
	return page ? taken_by(to, at) : 0;
}

/*
 * Of other maps of this node, some or all, and then of other nodes, if much is there, or of
 * all. Each request begins where the thread's last one ended.
 */
static uint32_t take_elsewhere(struct pin_map *map, const struct pin_run_need *need, bool all,
			       size_t *n_used)
{
	uint32_t n = n_maps, most = all || n < LOOKS ? n : LOOKS, page = 0;
	struct pin_map *from;

	for (uint32_t i = 0; i < most && !page; i++) {
		from = &maps[own.n_looks++ % n];
		if (from != map && from->node == map->node)
			page = take_from(from, map, need, n_used);
	}
	if (page || !has_nodes || !(all || much_is_elsewhere(map->node)))
		return page;
	for (from = maps; from < &maps[n] && !page; from++)
		if (from->node != map->node)
			page = take_from(from, from, need, n_used);
	return page;
}

/* Bare memory of another map, if no map can grow. */
static uint32_t take_bare(const struct pin_run_need *need, size_t *n_used)
{
	struct place place = {0, 0, 0};
	uint32_t page = 0;

	for (uint32_t i = 0; i < n_maps && !page; i++) {
		lock(&maps[i]);
		place = place_in_bare(&maps[i], need);
		if (place.page)
			page = taken_by(&maps[i], take_place(&maps[i], need, &place, n_used));
		pin_map_unlock(&maps[i]);
	}
	return page;
}

/* Used memory of the map, which is locked. */
static inline uint32_t take_own(struct pin_map *map, const struct pin_run_need *need,
				size_t *n_used)
{
	collect(map);
	return take_used(map, need, n_used);
}

uint32_t pin_run_take(const struct pin_run_need *need, size_t *n_used)
{
	struct pin_map *map = lock_own();
	uint32_t page = take_own(map, need, n_used);

	if (!page && n_maps > 1) {
		pin_map_unlock(map);
		page = take_elsewhere(map, need, false, n_used);
		if (page)
			return page;
		lock(map);
		/* A run may have been on its way here from a map that was looked at. */
		page = take_own(map, need, n_used);
	}
	if (!page)
		page = take_new(map, need, own.node, n_used);
	pin_map_unlock(map);
	if (PIN_LIKELY(page))
		return taken_by(map, page);
	page = take_elsewhere(map, need, true, n_used);
	return page ? page : take_bare(need, n_used);
}

uint32_t pin_run_take_on(uint32_t node, const struct pin_run_need *need, size_t *n_used)
{
	struct pin_map *map = choose(node, false);
	uint32_t page;

	lock(map);
	page = take_own(map, need, n_used);
	if (!page)
		page = take_new(map, need, node, n_used);
	pin_map_unlock(map);
	return taken_by(map, page);
}

/* How many pages from `page` on the map has free. */
static uint32_t free_from(const struct pin_map *map, const struct pin_span *span, uint32_t page)
{
	uint32_t end = end_of(span), p = page;

	while (p < end && (is_of(map, p, PIN_STATE_FREE) || is_of(map, p, PIN_STATE_BARE)))
		p += pin_page(p)->length;
	return p - page;
}

bool pin_run_extend(struct pin_map *map, uint32_t page, uint32_t n_pages, size_t *n_used)
{
	const struct pin_span *span = span_of(page - 1);
	uint32_t has = free_from(map, span, page);

	/* Only the span that grows, and if nothing is in between. */
	if (has < n_pages &&
	    (map->span != span || page + has != end_of(span) ||
	     !grow_by_step(map, (size_t)(n_pages - has) << PIN_UNIT_SHIFT, span->node) ||
	     map->span != span || free_from(map, span, page) < n_pages))
		return false;
	pin_run_cut(map, page, page, n_pages, n_used);
	return true;
}

/* A map that begins meanwhile may have its lock taken, and its holder wait for that of growth.
 */
void pin_runs_lock_all(void)
{
	uint32_t n = 0;

	for (;;) {
		for (; n < n_maps; n++)
			lock(&maps[n]);
		pin_mutex_lock(&pin_growth_lock);
		if (n == n_maps)
			return;
		pin_mutex_unlock(&pin_growth_lock);
	}
}

void pin_runs_unlock_all(void)
{
	pin_mutex_unlock(&pin_growth_lock);
	for (uint32_t n = n_maps; n--;)
		pin_map_unlock(&maps[n]);
}

#ifdef PIN_DEBUG
size_t pin_runs_free_bytes(void)
{
	size_t n = 0;

	for (uint32_t i = 0; i < n_maps; i++)
		n += maps[i].n_used + maps[i].n_bare + maps[i].n_waiting + maps[i].n_given;
	return n << PIN_UNIT_SHIFT;
}
#endif
