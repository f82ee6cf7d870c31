/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chooses the free extent for a request: the one at the lowest address that is large enough.
 * Linking this file's symbols before jemalloc's archive replaces its eset.o, which searches
 * by size class, so that a request between two classes might not even find an extent of its
 * own size. Here a request finds any extent that fits, to the page, and memory that was never
 * used stays so as long as possible.
 *
 * The extents are in a treap by address, whose nodes know the largest extent below them.
 * Everything but the statistics runs under the lock of the set that owns the tree.
 */
#include <config.h>

#include "allocator/fit.h"
#include "allocator/jemalloc.h"

#include <string.h>

/*
 * The set is zero already: an arena is made from pages that were never used, or for which the
 * program's extent hooks were told to zero. Most sets are never touched.
 */
void je_eset_init(struct je_set *set, int state)
{
	(void)set;
	(void)state;
}

size_t je_eset_npages_get(struct je_set *set)
{
	return atomic_load_explicit(&set->n_pages, memory_order_relaxed);
}

size_t je_eset_nextents_get(struct je_set *set, unsigned class)
{
	return set->has_figures ? set->figures[class].n_extents : 0;
}

size_t je_eset_nbytes_get(struct je_set *set, unsigned class)
{
	return set->has_figures ? set->figures[class].n_bytes : 0;
}

/*
 * The largest size class of page runs that is no larger than n_bytes (sz_psz_quantize_floor).
 */
static unsigned floor_class(size_t n_bytes)
{
	unsigned lg = 63 - (unsigned)__builtin_clzl(n_bytes);

	if (n_bytes < 4 * JE_PAGE)
		return (unsigned)(n_bytes / JE_PAGE) - 1;
	return 4 * (lg - 2 - JE_PAGE_SHIFT) + 3 + (unsigned)(n_bytes >> (lg - 2) & 3);
}

static void add_relaxed(_Atomic size_t *figure, size_t n)
{
	atomic_store_explicit(figure, atomic_load_explicit(figure, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static PIN_COLD void clear_figures(struct je_set *set)
{
	memset(set->figures, 0, sizeof set->figures);
	atomic_store_explicit(&set->has_figures, true, memory_order_release);
}

/* Adds an extent to the statistics if n_extents is 1, subtracts it if -1. */
static void count_extent(struct je_set *set, size_t n_bytes, size_t n_extents)
{
	struct je_set_figures *figures = &set->figures[floor_class(n_bytes)];

	if (PIN_UNLIKELY(!set->has_figures))
		clear_figures(set);
	add_relaxed(&figures->n_extents, n_extents);
	add_relaxed(&figures->n_bytes, n_bytes * n_extents);
	add_relaxed(&set->n_pages, n_bytes / JE_PAGE * n_extents);
}

/*
 * A hash of the address, so that the tree is balanced in whatever order extents are inserted.
 */
static uint64_t priority(const struct je_extent *extent)
{
	uint64_t n = (uintptr_t)extent->addr / JE_PAGE * UINT64_C(0x9e3779b97f4a7c15);

	/* A product alone would rise steadily for addresses at some distances. */
	return (n ^ n >> 32) * UINT64_C(0xbf58476d1ce4e5b9);
}

static size_t largest_in(const struct je_extent *tree)
{
	return tree ? tree->largest : 0;
}

static void update_largest(struct je_extent *node)
{
	size_t n = je_extent_size(node), left = largest_in(node->left);
	size_t right = largest_in(node->right);

	n = n > left ? n : left;
	node->largest = n > right ? n : right;
}

/* Splits a tree into the extents below an address and those from it on. */
static void split(struct je_extent *tree, const char *addr, struct je_extent **below,
		  struct je_extent **above)
{
	if (!tree) {
		*below = *above = NULL;
		return;
	}
	if (tree->addr < addr) {
		*below = tree;
		split(tree->right, addr, &tree->right, above);
	} else {
		*above = tree;
		split(tree->left, addr, below, &tree->left);
	}
	update_largest(tree);
}

static struct je_extent *join(struct je_extent *below, struct je_extent *above)
{
	if (!below || !above)
		return below ? below : above;
	if (priority(below) > priority(above)) {
		below->right = join(below->right, above);
		update_largest(below);
		return below;
	}
	above->left = join(below, above->left);
	update_largest(above);
	return above;
}

static void insert(struct je_extent **tree, struct je_extent *extent)
{
	size_t n_bytes = je_extent_size(extent);

	while (*tree && priority(*tree) > priority(extent)) {
		if ((*tree)->largest < n_bytes)
			(*tree)->largest = n_bytes;
		tree = (*tree)->addr < extent->addr ? &(*tree)->right : &(*tree)->left;
	}
	split(*tree, extent->addr, &extent->left, &extent->right);
	update_largest(extent);
	*tree = extent;
}

static void remove_extent(struct je_extent **tree, struct je_extent *extent)
{
	if (*tree == extent) {
		*tree = join(extent->left, extent->right);
		return;
	}
	remove_extent((*tree)->addr < extent->addr ? &(*tree)->right : &(*tree)->left, extent);
	update_largest(*tree);
}

/* The lowest extent of at least n_bytes that begins at or above `from`. */
static struct je_extent *lowest_fit(struct je_extent *tree, size_t n_bytes, const char *from)
{
	struct je_extent *found = NULL;

	while (!found && largest_in(tree) >= n_bytes) {
		if (tree->addr >= from) {
			found = lowest_fit(tree->left, n_bytes, from);
			if (!found && je_extent_size(tree) >= n_bytes)
				found = tree;
		}
		tree = tree->right;
	}
	return found;
}

void je_eset_insert(struct je_set *set, struct je_extent *extent)
{
	/*
	 * Inserted first, which writes to the extent: were it read first, a new page would
	 * fault twice.
	 */
	insert(&set->root, extent);
	count_extent(set, je_extent_size(extent), 1);
	set->oldest = set->root;
}

void je_eset_remove(struct je_set *set, struct je_extent *extent)
{
	count_extent(set, je_extent_size(extent), (size_t)-1);
	remove_extent(&set->root, extent);
	set->oldest = set->root;
}

/* The highest extent that begins below an address. */
static struct je_extent *highest_below(struct je_extent *tree, const char *below)
{
	struct je_extent *found = NULL;

	while (tree) {
		if (tree->addr < below)
			found = tree;
		tree = tree->addr < below ? tree->right : tree->left;
	}
	return found;
}

static bool can_hold(const struct je_extent *extent, size_t n_bytes, size_t alignment)
{
	size_t lead = -(uintptr_t)extent->addr & (alignment - 1);

	return je_extent_size(extent) >= lead + n_bytes;
}

/*
 * An aligned request first tries this many extents where it may fit, then those so large that
 * it fits wherever they begin.
 */
#define TRIES 16

static struct je_extent *find_fit(struct je_set *set, size_t n_bytes, size_t alignment)
{
	size_t most = n_bytes + PIN_ALIGN_UP(alignment, JE_PAGE) - JE_PAGE;
	struct je_extent *extent = lowest_fit(set->root, n_bytes, NULL);

	if (most < n_bytes)
		return NULL;
	for (int i = 0; i < TRIES && extent; i++) {
		if (alignment <= JE_PAGE || can_hold(extent, n_bytes, alignment))
			return extent;
		extent = lowest_fit(set->root, n_bytes, extent->addr + 1);
	}
	extent = lowest_fit(set->root, most, NULL);
	/*
	 * The heap grows by what the last extent lacks (store.c): by nothing, if the request
	 * fits there.
	 */
	if (!extent)
		extent = highest_below(set->root, (const char *)UINTPTR_MAX);
	return extent && can_hold(extent, n_bytes, alignment) ? extent : NULL;
}

__thread struct pin_fit_query *pin_fit_query;
__thread const char *pin_fit_end;
__thread uintptr_t pin_fit_limit;

static struct je_extent *extent_ending_at(struct je_set *set, const char *end)
{
	struct je_extent *extent = highest_below(set->root, end);

	return extent && extent->addr + je_extent_size(extent) == end ? extent : NULL;
}

static void fill_query(struct je_set *set, struct pin_fit_query *query)
{
	struct je_extent *last = highest_below(set->root, (const char *)UINTPTR_MAX);
	struct je_extent *before = extent_ending_at(set, query->from);
	struct je_extent *behind = highest_below(set->root, query->to + 1);

	query->before = before ? je_extent_size(before) : 0;
	query->behind = behind && behind->addr == query->to ? je_extent_size(behind) : 0;
	query->last = last ? last->addr : NULL;
	query->last_size = last ? je_extent_size(last) : 0;
}

static PIN_COLD struct je_extent *search_specially(struct je_set *set, size_t n_bytes)
{
	struct je_extent *extent;

	if (pin_fit_query) {
		fill_query(set, pin_fit_query);
		return NULL;
	}
	extent = extent_ending_at(set, pin_fit_end);
	return extent && je_extent_size(extent) == n_bytes ? extent : NULL;
}

static bool exceeds_limit(const struct je_extent *extent, size_t n_bytes, size_t alignment)
{
	uintptr_t start = PIN_ALIGN_UP((uintptr_t)extent->addr, alignment);

	return pin_fit_limit && start + n_bytes > pin_fit_limit;
}

struct je_extent *je_eset_fit(struct je_set *set, size_t n_bytes, size_t alignment,
			      bool exact_only, unsigned lg_max_fit)
{
	struct je_extent *extent;

	(void)exact_only; /* for guard pages, which are off */
	(void)lg_max_fit;
	if (PIN_UNLIKELY(pin_fit_query || pin_fit_end))
		return search_specially(set, n_bytes);
	extent = find_fit(set, n_bytes, alignment);
	return extent && exceeds_limit(extent, n_bytes, alignment) ? NULL : extent;
}
