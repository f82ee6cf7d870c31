/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/runs.h"
#include "allocator/fit.h"
#include "allocator/live.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/span.h"

#define N_NODES 8 /* nodes beyond these share maps */

struct map {
	struct pin_span *span; /* the one that grows, if any */
	uint32_t used, bare;   /* trees */
	size_t n_used, n_bare; /* pages */
};

PIN_WRITTEN_FIRST static struct map maps[N_NODES];

/* Where memory at a span's end begins that the tables do not cover yet, and how much. */
PIN_WRITTEN_FIRST static uintptr_t uncovered;
PIN_WRITTEN_FIRST static size_t n_uncovered;

static struct pin_page *record(uint32_t page)
{
	return &pin_pages.records[page];
}

static const struct pin_span *span_of(uint32_t page)
{
	return pin_span_find(pin_page_at(page), 1);
}

static struct map *map_of(uint32_t page)
{
	return &maps[span_of(page)->node % N_NODES];
}

/* The page behind a span's last one that is covered. */
static uint32_t end_of(const struct pin_span *span)
{
	uintptr_t last;

	if (!span)
		return 0;
	last = span->start + span->length - 1;
	if (PIN_UNLIKELY(uncovered) && uncovered - span->start <= span->length)
		last = uncovered - 1;
	return pin_page_of((void *)last) + 1;
}

/* A process with one thread has memory of the node where it began, as it would by itself. */
extern char __libc_single_threaded __attribute__((weak));

static uint32_t node_here(void)
{
	if (&__libc_single_threaded && __libc_single_threaded && pin_span_count())
		return pin_span_get(0)->node;
	return pin_os_node();
}

/* --- runs ------------------------------------------------------------------------- */

/* Of a page that begins or ends a free run. */
static enum pin_kind kind_of(uint32_t page)
{
	return (enum pin_kind)(pin_pages.kinds[page] & ~PIN_KIND_LAST);
}

static void insert(struct map *map, uint32_t page, uint32_t n_pages, enum pin_kind kind)
{
	record(page)->length = n_pages;
	record(page + n_pages - 1)->length = n_pages;
	pin_pages.kinds[page + n_pages - 1] = (uint8_t)(kind + PIN_KIND_LAST);
	pin_pages.kinds[page] = (uint8_t)kind;
	pin_fit_insert(kind == PIN_KIND_FREE ? &map->used : &map->bare, page);
	*(kind == PIN_KIND_FREE ? &map->n_used : &map->n_bare) += n_pages;
}

static void delete (struct map *map, uint32_t page)
{
	uint32_t n_pages = record(page)->length;
	enum pin_kind kind = kind_of(page);

	*(kind == PIN_KIND_FREE ? &map->n_used : &map->n_bare) -= n_pages;
	pin_fit_delete(kind == PIN_KIND_FREE ? &map->used : &map->bare, page);
	pin_pages.kinds[page] = pin_pages.kinds[page + n_pages - 1] = PIN_KIND_NONE;
}

/* The length of the free run of this kind that ends before a page of a span, or behind it. */
static uint32_t ending(const struct pin_span *span, uint32_t page, enum pin_kind kind)
{
	return pin_page_at(page) != (void *)span->start && kind_of(page - 1) == kind
		       ? record(page - 1)->length
		       : 0;
}

/* The length of the one that begins there. */
static uint32_t beginning(const struct pin_span *span, uint32_t page, enum pin_kind kind)
{
	return page != end_of(span) && kind_of(page) == kind ? record(page)->length : 0;
}

static uint32_t before(uint32_t page, enum pin_kind kind)
{
	return ending(span_of(page), page, kind);
}

static uint32_t behind(uint32_t page, enum pin_kind kind)
{
	return beginning(span_of(page - 1), page, kind);
}

static void give(const struct pin_span *span, uint32_t page, uint32_t n_pages,
		 enum pin_kind kind)
{
	struct map *map = &maps[span->node % N_NODES];
	uint32_t n_before = ending(span, page, kind);
	uint32_t n_behind = beginning(span, page + n_pages, kind);

	if (n_before)
		delete (map, page - n_before);
	if (n_behind)
		delete (map, page + n_pages);
	insert(map, page - n_before, n_before + n_pages + n_behind, kind);
}

/*
 * The used run that was given last waits: a program that frees a block often requests as much
 * next, and gets this run. Whatever looks at a map puts the waiting run there first.
 */
PIN_WRITTEN_FIRST static struct {
	uint32_t page, n_pages;
} waiting;

static void put_waiting(void)
{
	if (waiting.n_pages)
		give(span_of(waiting.page), waiting.page, waiting.n_pages, PIN_KIND_FREE);
	waiting.n_pages = 0;
}

static bool take_waiting(const struct pin_run_need *need, uint32_t node)
{
	if (waiting.n_pages != need->n_pages || map_of(waiting.page) != &maps[node % N_NODES] ||
	    pin_fit_aligned(waiting.page, need->alignment) != waiting.page)
		return false;
	waiting.n_pages = 0;
	return true;
}

/* jemalloc merges runs of any nodes. */
void pin_run_give(uint32_t page, uint32_t n_pages, enum pin_kind kind)
{
	const struct pin_span *span;
	uint32_t n;

	if (n_pages)
		put_waiting();
	for (; n_pages; page += n, n_pages -= n) {
		span = span_of(page);
		n = end_of(span) - page;
		n = n < n_pages ? n : n_pages;
		if (kind == PIN_KIND_FREE && n == n_pages) {
			waiting.page = page;
			waiting.n_pages = n;
		} else {
			give(span, page, n, kind);
		}
	}
}

uint32_t pin_run_before(uint32_t page)
{
	put_waiting();
	return before(page, PIN_KIND_FREE);
}

uint32_t pin_run_at(uint32_t page)
{
	put_waiting();
	return behind(page, PIN_KIND_FREE);
}

bool pin_run_fits(uint32_t n_pages)
{
	put_waiting();
	return pin_fit_find(maps[node_here() % N_NODES].used, n_pages, 1);
}

/* Takes [at, at + n_pages) out of free runs, one behind the other, the first at `page`. */
static void cut(struct map *map, uint32_t page, uint32_t at, uint32_t n_pages, size_t *n_used)
{
	uint32_t end = at + n_pages, used = at, next;
	enum pin_kind kind;

	for (; page < end; page = next) {
		kind = kind_of(page);
		next = page + record(page)->length;
		delete (map, page);
		if (page < at)
			insert(map, page, at - page, kind);
		if (next > end)
			insert(map, end, next - end, kind);
		if (kind == PIN_KIND_FREE)
			used = next < end ? next : end;
	}
	*n_used = (size_t)(used - at) << PIN_UNIT_SHIFT;
	if (map->span)
		pin_span_note_use(map->span, (uintptr_t)pin_page_at(end));
}

void pin_run_take_at(uint32_t page, uint32_t n_pages, size_t *n_used)
{
	cut(map_of(page), page, page, n_pages, n_used);
}

void pin_run_take_before(uint32_t page, uint32_t n_pages)
{
	size_t n_used;

	cut(map_of(page - 1), page - pin_run_before(page), page - n_pages, n_pages, &n_used);
}

static uint32_t take_used(uint32_t node, const struct pin_run_need *need, size_t *n_used)
{
	struct map *map = &maps[node % N_NODES];
	uint32_t page, at;

	*n_used = (size_t)need->n_pages << PIN_UNIT_SHIFT;
	if (take_waiting(need, node))
		return waiting.page;
	put_waiting();
	page = pin_fit_find(map->used, need->n_pages, need->alignment);
	if (!page)
		return 0;
	at = pin_fit_aligned(page, need->alignment);
	cut(map, page, at, need->n_pages, n_used);
	return at;
}

/* --- growth ----------------------------------------------------------------------- */

/* Puts memory of a span in the map. If the tables have no memory, that is tried again later. */
static bool cover(void)
{
	void *addr = (void *)uncovered;
	uint32_t page = pin_page_of(addr), end = page + pin_units(n_uncovered);

	if (!addr)
		return true;
	if (pin_pages_cover(addr, n_uncovered))
		return false;
	uncovered = 0;
	/* The heap's first page is no memory: 0 is the number of none. */
	page = page ? page : 1;
	give(span_of(page), page, end - page, PIN_KIND_BARE);
	return true;
}

static bool add_memory(struct map *map, size_t n_bytes, uint32_t node)
{
	char *p;

	if (!cover())
		return false;
	n_bytes = PIN_ALIGN_UP(n_bytes, PIN_GRANULE);
	p = n_bytes ? pin_span_grow(&map->span, n_bytes, node) : NULL;
	if (!p)
		return false;
	pin_live_note_growth(n_bytes);
	uncovered = (uintptr_t)p;
	n_uncovered = n_bytes;
	return cover();
}

/*
 * The heap grows by at least a share of its size, so that steps are few; memory of a step
 * that is not used costs only addresses. The first step is at most a share of what the heap
 * can ever get, because tables need some too.
 */
#define FIRST_STEP	   (8 * PIN_MIB)
#define SHARE_OF_HEAP	   8
#define MAX_SHARE_OF_LIMIT 16

static size_t first_step(void)
{
	size_t most = pin_reserve.memory / MAX_SHARE_OF_LIMIT;
	size_t first = FIRST_STEP < pin_options.grow / 4 ? FIRST_STEP : pin_options.grow / 4;

	return first < most ? first : most;
}

static size_t min_step(void)
{
	size_t step = pin_span_bytes() / SHARE_OF_HEAP;
	size_t first = first_step();

	if (first < pin_options.top_pad)
		first = pin_options.top_pad;
	step = step > first ? step : first;
	return step < pin_options.grow ? step : pin_options.grow;
}

static bool grow_by_step(struct map *map, size_t n_lacking, uint32_t node)
{
	size_t step = min_step();

	return (n_lacking < step && add_memory(map, step, node)) ||
	       add_memory(map, n_lacking, node);
}

/* --- new memory ------------------------------------------------------------------- */

/* Where a request can be served that needs new memory. */
struct place {
	uint32_t page; /* the first free run there, if any */
	uint32_t at;   /* aligned */
	uint32_t n_new;
};

/* From used memory on that may be there before the bare addresses. They may be too short. */
static struct place place_from(uint32_t from, uint32_t bare, const struct pin_run_need *need)
{
	uint32_t at = pin_fit_aligned(from, need->alignment), least = at > bare ? at : bare;
	uint32_t to = at + need->n_pages;

	return (struct place){at < bare ? from : bare, at, to > least ? to - least : 0};
}

static uint32_t take_place(struct map *map, const struct pin_run_need *need,
			   const struct place *place, size_t *n_used)
{
	cut(map, place->page, place->at, need->n_pages, n_used);
	return place->at;
}

/* In bare addresses that have room, and the longer of the used runs next to them. */
static struct place place_in_bare(const struct map *map, const struct pin_run_need *need)
{
	uint32_t bare = pin_fit_find(map->bare, need->n_pages, need->alignment), end;
	uint32_t n_before, n_behind;

	if (!bare)
		return (struct place){0, 0, UINT32_MAX};
	end = bare + record(bare)->length;
	n_before = before(bare, PIN_KIND_FREE);
	n_behind = behind(end, PIN_KIND_FREE);
	if (need->alignment > 1 || n_behind <= n_before || n_behind >= need->n_pages)
		return place_from(bare - n_before, bare, need);
	return (struct place){bare, end + n_behind - need->n_pages, need->n_pages - n_behind};
}

static struct place place_at_end(const struct map *map, const struct pin_run_need *need)
{
	uint32_t end = end_of(map->span), n_bare, n_before;

	if (!end)
		return (struct place){0, 0, need->n_pages};
	n_bare = ending(map->span, end, PIN_KIND_BARE);
	n_before = ending(map->span, end - n_bare, PIN_KIND_FREE);
	return place_from(end - n_bare - n_before, end - n_bare, need);
}

/* The span may have to go on elsewhere, and then lack more. */
static uint32_t take_new(struct map *map, const struct pin_run_need *need, uint32_t node,
			 size_t *n_used)
{
	struct place place, last;
	uint64_t lacks;

	for (;;) {
		place = place_in_bare(map, need);
		last = place_at_end(map, need);
		if (place.n_new <= last.n_new)
			return take_place(map, need, &place, n_used);
		lacks = (uint64_t)last.at + need->n_pages - end_of(map->span);
		if (last.at && (int64_t)lacks <= 0)
			return take_place(map, need, &last, n_used);
		if (!grow_by_step(map, lacks << PIN_UNIT_SHIFT, node))
			return place.page ? take_place(map, need, &place, n_used) : 0;
	}
}

/* A quarter of the heap, on all other nodes together: a thread may roam over many. */
static bool much_is_elsewhere(uint32_t node)
{
	size_t n = 0;

	for (uint32_t i = 0; i < N_NODES; i++)
		n += i == node % N_NODES ? 0 : maps[i].n_used;
	return n > pin_span_bytes() >> PIN_UNIT_SHIFT >> 2;
}

/* Of other nodes; used memory only, unless `any`. */
static uint32_t take_elsewhere(uint32_t node, const struct pin_run_need *need, bool any,
			       size_t *n_used)
{
	struct place place;
	uint32_t page = 0;

	for (uint32_t i = 0; i < N_NODES && !page; i++) {
		if (i == node % N_NODES)
			continue;
		page = take_used(i, need, n_used);
		if (page || !any)
			continue;
		place = place_in_bare(&maps[i], need);
		page = place.page ? take_place(&maps[i], need, &place, n_used) : 0;
	}
	return page;
}

uint32_t pin_run_take(const struct pin_run_need *need, size_t *n_used)
{
	uint32_t node = node_here();
	struct map *map = &maps[node % N_NODES];
	uint32_t page = take_used(node, need, n_used);

	if (!page && much_is_elsewhere(node))
		page = take_elsewhere(node, need, false, n_used);
	if (!page)
		page = take_new(map, need, node, n_used);
	return page ? page : take_elsewhere(node, need, true, n_used);
}

uint32_t pin_run_take_on(uint32_t node, const struct pin_run_need *need, size_t *n_used)
{
	uint32_t page = take_used(node, need, n_used);

	return page ? page : take_new(&maps[node % N_NODES], need, node, n_used);
}

/* How many pages from `page` on are free. */
static uint32_t free_from(uint32_t page)
{
	uint32_t end = end_of(span_of(page - 1)), p = page;

	while (p < end && pin_pages.kinds[p] >= PIN_KIND_FREE)
		p += record(p)->length;
	return p - page;
}

bool pin_run_extend(uint32_t page, uint32_t n_pages, size_t *n_used)
{
	const struct pin_span *span = span_of(page - 1);
	struct map *map = map_of(page - 1);
	uint32_t has;

	put_waiting();
	has = free_from(page);
	/* Only the span that grows for its node, and if nothing is in between. */
	if (has < n_pages &&
	    (map->span != span || page + has != end_of(span) ||
	     !grow_by_step(map, (size_t)(n_pages - has) << PIN_UNIT_SHIFT, span->node) ||
	     map->span != span || free_from(page) < n_pages))
		return false;
	cut(map, page, page, n_pages, n_used);
	return true;
}

size_t pin_runs_free_bytes(void)
{
	size_t n = 0;

	pin_runs_take_lock();
	put_waiting();
	for (uint32_t i = 0; i < N_NODES; i++)
		n += maps[i].n_used + maps[i].n_bare;
	pin_runs_release_lock();
	return n << PIN_UNIT_SHIFT;
}
