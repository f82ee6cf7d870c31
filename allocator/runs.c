/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/runs.h"
#include "allocator/fit.h"
#include "allocator/growth.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/span.h"

#define N_NODES 8 /* nodes beyond these share maps */

/*
 * How much memory that was never used is handed out before caches have to be emptied. New
 * memory costs nothing until it is touched: if they were emptied only when a growth step is
 * used up, all of each step would be touched.
 */
#define LEEWAY (4 * PIN_MIB)

PIN_WRITTEN_FIRST struct pin_flag pin_runs_lock;

PIN_WRITTEN_FIRST static struct map {
	struct pin_span *span;
	uint32_t root;	/* of the tree of its free runs */
	uint32_t limit; /* pages from here on are taken only with may_grow */
	uint32_t tail;	/* the free run at the span's end; its last page has no record yet */
	size_t n_free;	/* pages */
} maps[N_NODES];

/* Memory that a span has got and the tables do not cover yet. */
PIN_WRITTEN_FIRST static struct {
	char *addr;
	size_t n_bytes;
} uncovered;

static struct pin_page *record(uint32_t page)
{
	return &pin_pages.records[page];
}

static uint32_t end_of(const struct pin_span *span)
{
	return span ? pin_page_of((void *)(span->start + span->length - 1)) + 1 : 0;
}

static const struct pin_span *span_of(uint32_t page)
{
	return pin_span_find(pin_page_at(page), 1);
}

static struct map *map_of(const struct pin_span *span)
{
	return &maps[span->node % N_NODES];
}

/* A process with one thread has memory of the node where it began, as it would by itself. */
extern char __libc_single_threaded __attribute__((weak));

static uint32_t node_here(void)
{
	if (&__libc_single_threaded && __libc_single_threaded && pin_span_count())
		return pin_span_get(0)->node;
	return pin_os_node();
}

static void insert(struct map *map, uint32_t page, uint32_t n_pages)
{
	record(page)->length = n_pages;
	if (page + n_pages == end_of(map->span))
		map->tail = page; /* in small programs nobody need touch that record */
	else
		record(page + n_pages - 1)->length = n_pages;
	pin_pages.kinds[page] = pin_pages.kinds[page + n_pages - 1] = PIN_KIND_FREE;
	pin_fit_insert(&map->root, page);
	map->n_free += n_pages;
}

static void delete (struct map *map, uint32_t page)
{
	uint32_t n_pages = record(page)->length;

	if (page == map->tail)
		map->tail = 0;
	pin_fit_delete(&map->root, page);
	pin_pages.kinds[page] = pin_pages.kinds[page + n_pages - 1] = PIN_KIND_NONE;
	map->n_free -= n_pages;
}

static bool is_free(uint32_t page)
{
	return pin_pages.kinds[page] == PIN_KIND_FREE;
}

uint32_t pin_run_before(uint32_t page)
{
	const struct pin_span *span = span_of(page);

	return pin_page_at(page) != (void *)span->start && is_free(page - 1)
		       ? record(page - 1)->length
		       : 0;
}

uint32_t pin_run_behind(uint32_t page, uint32_t n_pages)
{
	return page + n_pages != end_of(span_of(page)) && is_free(page + n_pages)
		       ? record(page + n_pages)->length
		       : 0;
}

static void give_in_span(const struct pin_span *span, uint32_t page, uint32_t n_pages)
{
	struct map *map = map_of(span);
	uint32_t before = pin_run_before(page), behind = pin_run_behind(page, n_pages);

	if (before)
		delete (map, page - before);
	if (behind)
		delete (map, page + n_pages);
	insert(map, page - before, before + n_pages + behind);
}

/* jemalloc merges runs of any nodes. */
void pin_run_give(uint32_t page, uint32_t n_pages)
{
	const struct pin_span *span;
	uint32_t n;

	for (; n_pages; page += n, n_pages -= n) {
		span = span_of(page);
		n = end_of(span) - page;
		n = n < n_pages ? n : n_pages;
		give_in_span(span, page, n);
	}
}

/* Says how much of it was used, and that all is from now on. */
static size_t note_use(struct map *map, uint32_t page, uint32_t n_pages)
{
	size_t n_used = pin_span_used(pin_page_at(page), (size_t)n_pages << PIN_UNIT_SHIFT);

	pin_span_note_use(map->span, (uintptr_t)pin_page_at(page + n_pages));
	if (page + n_pages > map->limit)
		map->limit = page + n_pages + (uint32_t)(LEEWAY >> PIN_UNIT_SHIFT);
	return n_used;
}

/* Takes `n_pages` from `at` on out of the free run that begins at `page`. */
static size_t cut(struct map *map, uint32_t page, uint32_t at, uint32_t n_pages)
{
	uint32_t end = page + record(page)->length;

	delete (map, page);
	if (at > page)
		insert(map, page, at - page);
	if (at + n_pages < end)
		insert(map, at + n_pages, end - at - n_pages);
	return note_use(map, at, n_pages);
}

/* Addresses are what is aligned, and the heap need not begin so. */
static uint32_t aligned_up(uint32_t page, uint32_t alignment)
{
	uint64_t base = pin_pages.base >> PIN_UNIT_SHIFT, mask = alignment - 1;

	return (uint32_t)(((base + page + mask) & ~mask) - base);
}

static uint32_t take_from(struct map *map, const struct pin_run_need *need, size_t *n_used)
{
	uint32_t limit = need->may_grow ? UINT32_MAX : map->limit;
	struct pin_fit fit = {need->n_pages, need->alignment, limit};
	uint32_t page = pin_fit_find(map->root, &fit), at;

	if (!page)
		return 0;
	at = aligned_up(page, need->alignment);
	*n_used = cut(map, page, at, need->n_pages);
	return at;
}

/* Puts memory of a span in the map. If the tables have no memory, that is tried again later. */
static bool cover(void)
{
	const struct pin_span *span;
	uint32_t page;

	if (!uncovered.addr)
		return true;
	if (pin_pages_cover(uncovered.addr, uncovered.n_bytes))
		return false;
	page = pin_page_of(uncovered.addr);
	span = span_of(page);
	/* The heap's first page is no memory: 0 is the number of none. */
	if (!page)
		give_in_span(span, 1, (uint32_t)(uncovered.n_bytes >> PIN_UNIT_SHIFT) - 1);
	else
		give_in_span(span, page, (uint32_t)(uncovered.n_bytes >> PIN_UNIT_SHIFT));
	uncovered.addr = NULL;
	return true;
}

static bool add_memory(struct map *map, size_t n_bytes, uint32_t node)
{
	char *p;

	if (!cover())
		return false;
	if (map->tail)
		record(end_of(map->span) - 1)->length = record(map->tail)->length;
	n_bytes = PIN_ALIGN_UP(n_bytes, PIN_GRANULE);
	p = n_bytes ? pin_span_grow(&map->span, n_bytes, node) : NULL;
	if (!p)
		return false;
	pin_growth_note(n_bytes);
	uncovered.addr = p;
	uncovered.n_bytes = n_bytes;
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

/* What free memory at the end of the span does not cover, in bytes. */
static size_t lacking(const struct map *map, const struct pin_run_need *need)
{
	uint32_t end = end_of(map->span), from = end;
	size_t to;

	if (!end)
		return ((size_t)need->n_pages + need->alignment) << PIN_UNIT_SHIFT;
	if (map->tail)
		from = map->tail;
	to = (size_t)aligned_up(from, need->alignment) + need->n_pages;
	return to > end ? (to - end) << PIN_UNIT_SHIFT : 0;
}

/* Of other nodes; those with little free memory only if `any`. */
static uint32_t take_elsewhere(const struct map *own, const struct pin_run_need *need, bool any,
			       size_t *n_used)
{
	size_t much = pin_span_bytes() >> PIN_UNIT_SHIFT >> 2;
	struct pin_run_need used = *need;
	uint32_t page = 0;

	used.may_grow = any;
	for (struct map *map = maps; map < maps + N_NODES && !page; map++)
		if (map != own && map->root && (any || map->n_free > much))
			page = take_from(map, &used, n_used);
	return page;
}

/* The span may have to go on elsewhere, and then lack more. */
static uint32_t take_growing(struct map *map, const struct pin_run_need *need, uint32_t node,
			     size_t *n_used)
{
	uint32_t page;
	size_t n;

	while (!(page = take_from(map, need, n_used))) {
		n = lacking(map, need);
		if (!grow_by_step(map, n ? n : PIN_GRANULE, node))
			return 0;
	}
	return page;
}

uint32_t pin_run_take(const struct pin_run_need *need, size_t *n_used)
{
	uint32_t node = node_here();
	struct map *map = &maps[node % N_NODES];
	struct pin_run_need used = *need;
	uint32_t page;

	used.may_grow = false;
	page = take_from(map, &used, n_used);
	if (page || !need->may_grow)
		return page;
	page = take_elsewhere(map, need, false, n_used);
	if (!page)
		page = take_growing(map, need, node, n_used);
	return page ? page : take_elsewhere(map, need, true, n_used);
}

uint32_t pin_run_take_on(uint32_t node, const struct pin_run_need *need, size_t *n_used)
{
	return take_growing(&maps[node % N_NODES], need, node, n_used);
}

void pin_run_take_behind(uint32_t page, uint32_t n_pages, size_t *n_used)
{
	*n_used = cut(map_of(span_of(page)), page, page, n_pages);
}

void pin_run_take_before(uint32_t page, uint32_t n_pages)
{
	uint32_t length = record(page - 1)->length;

	cut(map_of(span_of(page - 1)), page - length, page - n_pages, n_pages);
}

bool pin_run_extend(uint32_t page, uint32_t n_pages)
{
	const struct pin_span *span = span_of(page - 1);
	struct map *map = map_of(span);
	uint32_t end = end_of(span), has = 0;

	if (page != end)
		has = is_free(page) ? record(page)->length : 0;
	/* Only the span that grows for its node, and if nothing is in between. */
	if (map->span != span || page + has != end)
		return false;
	if (n_pages > has &&
	    !grow_by_step(map, (size_t)(n_pages - has) << PIN_UNIT_SHIFT, span->node))
		return false;
	return map->span == span && page != end_of(span) && is_free(page) &&
	       record(page)->length >= n_pages;
}

size_t pin_runs_free_bytes(void)
{
	size_t n = 0;

	pin_runs_take_lock();
	for (struct map *map = maps; map < maps + N_NODES; map++)
		n += map->n_free;
	pin_runs_release_lock();
	return n << PIN_UNIT_SHIFT;
}
