/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which free extent serves a request: the one at the lowest address that is large enough.
 * Linking this file's symbols before jemalloc's archive takes the place of its eset.o,
 * which looks by size class: a request between two classes may then not find the very
 * extent it has freed. Here every request finds room where there is any, to the page, and
 * what was never touched stays so as long as possible.
 *
 * The extents are in a tree by address, a treap, whose nodes know the largest extent below
 * them. All of it runs under the lock of the set that owns the tree, but for the figures.
 */
#include <config.h>

#include "allocator/fit.h"
#include "allocator/jemalloc.h"

#include <string.h>

/*
 * It is zero already: an arena is made from pages that no one has had, or from what hooks of
 * the program's were told to zero. Most sets are never touched.
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

/* The largest class of runs of pages that is no larger (sz_psz_quantize_floor). */
static unsigned class_of(size_t n_bytes)
{
	unsigned lg = 63 - (unsigned)__builtin_clzl(n_bytes);

	if (n_bytes < 4 * PIN_PAGE)
		return (unsigned)(n_bytes / PIN_PAGE) - 1;
	return 4 * (lg - 14) + 3 + (unsigned)(n_bytes >> (lg - 2) & 3);
}

static void add(_Atomic size_t *figure, size_t n)
{
	atomic_store_explicit(figure, atomic_load_explicit(figure, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static PIN_COLD void clear_figures(struct je_set *set)
{
	memset(set->figures, 0, sizeof set->figures);
	atomic_store_explicit(&set->has_figures, true, memory_order_release);
}

/* Adds up: n_extents is 1 or -1. */
static void count(struct je_set *set, size_t n_bytes, size_t n_extents)
{
	struct je_set_figures *figures = &set->figures[class_of(n_bytes)];

	if (PIN_UNLIKELY(!set->has_figures))
		clear_figures(set);
	add(&figures->n_extents, n_extents);
	add(&figures->n_bytes, n_bytes * n_extents);
	add(&set->n_pages, n_bytes / PIN_PAGE * n_extents);
}

/* Scatters addresses, so that the tree is balanced whatever their order. */
static uint64_t priority(const struct je_extent *extent)
{
	uint64_t n = (uintptr_t)extent->addr / PIN_PAGE * UINT64_C(0x9e3779b97f4a7c15);

	/* A product alone rises steadily with addresses at some distances. */
	return (n ^ n >> 32) * UINT64_C(0xbf58476d1ce4e5b9);
}

static size_t largest(const struct je_extent *tree)
{
	return tree ? tree->largest : 0;
}

static void update(struct je_extent *node)
{
	size_t n = je_extent_size(node), left = largest(node->left);
	size_t right = largest(node->right);

	n = n > left ? n : left;
	node->largest = n > right ? n : right;
}

/* Into what is below an address and what is above it. */
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
	update(tree);
}

static struct je_extent *join(struct je_extent *below, struct je_extent *above)
{
	if (!below || !above)
		return below ? below : above;
	if (priority(below) > priority(above)) {
		below->right = join(below->right, above);
		update(below);
		return below;
	}
	above->left = join(below, above->left);
	update(above);
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
	update(extent);
	*tree = extent;
}

static void take_out(struct je_extent **tree, struct je_extent *extent)
{
	if (*tree == extent) {
		*tree = join(extent->left, extent->right);
		return;
	}
	take_out((*tree)->addr < extent->addr ? &(*tree)->right : &(*tree)->left, extent);
	update(*tree);
}

/* The lowest from an address on that has so many bytes. */
static struct je_extent *lowest(struct je_extent *tree, size_t n_bytes, const char *from)
{
	struct je_extent *found = NULL;

	while (!found && largest(tree) >= n_bytes) {
		if (tree->addr >= from) {
			found = lowest(tree->left, n_bytes, from);
			if (!found && je_extent_size(tree) >= n_bytes)
				found = tree;
		}
		tree = tree->right;
	}
	return found;
}

void je_eset_insert(struct je_set *set, struct je_extent *extent)
{
	/* First: to be read first would take the page a second fault. */
	insert(&set->root, extent);
	count(set, je_extent_size(extent), 1);
	set->oldest = set->root;
}

void je_eset_remove(struct je_set *set, struct je_extent *extent)
{
	count(set, je_extent_size(extent), (size_t)-1);
	take_out(&set->root, extent);
	set->oldest = set->root;
}

/* The highest that begins below an address. */
static struct je_extent *highest(struct je_extent *tree, const char *below)
{
	struct je_extent *found = NULL;

	while (tree) {
		if (tree->addr < below)
			found = tree;
		tree = tree->addr < below ? tree->right : tree->left;
	}
	return found;
}

static bool holds(const struct je_extent *extent, size_t n_bytes, size_t alignment)
{
	size_t lead = -(uintptr_t)extent->addr & (alignment - 1);

	return je_extent_size(extent) >= lead + n_bytes;
}

/*
 * An aligned request is tried where it may fit, and then where it does fit wherever the
 * extent begins.
 */
#define TRIES 16

static struct je_extent *fit(struct je_set *set, size_t n_bytes, size_t alignment)
{
	size_t most = n_bytes + PIN_ALIGN_UP(alignment, PIN_PAGE) - PIN_PAGE;
	struct je_extent *extent = lowest(set->root, n_bytes, NULL);

	if (most < n_bytes)
		return NULL;
	for (int i = 0; i < TRIES && extent; i++) {
		if (alignment <= PIN_PAGE || holds(extent, n_bytes, alignment))
			return extent;
		extent = lowest(set->root, n_bytes, extent->addr + 1);
	}
	extent = lowest(set->root, most, NULL);
	/* The heap grows by what the last one lacks (extents.c): nothing, if it holds. */
	if (!extent)
		extent = highest(set->root, (const char *)UINTPTR_MAX);
	return extent && holds(extent, n_bytes, alignment) ? extent : NULL;
}

__thread struct pin_fit_query *pin_fit_query;
__thread const char *pin_fit_end;
__thread uintptr_t pin_fit_limit;

static struct je_extent *ending_at(struct je_set *set, const char *end)
{
	struct je_extent *extent = highest(set->root, end);

	return extent && extent->addr + je_extent_size(extent) == end ? extent : NULL;
}

static void answer(struct je_set *set, struct pin_fit_query *query)
{
	struct je_extent *last = highest(set->root, (const char *)UINTPTR_MAX);
	struct je_extent *before = ending_at(set, query->from);
	struct je_extent *behind = highest(set->root, query->to + 1);

	query->before = before ? je_extent_size(before) : 0;
	query->behind = behind && behind->addr == query->to ? je_extent_size(behind) : 0;
	query->last = last ? last->addr : NULL;
	query->last_size = last ? je_extent_size(last) : 0;
}

static PIN_COLD struct je_extent *fit_otherwise(struct je_set *set, size_t n_bytes)
{
	struct je_extent *extent;

	if (pin_fit_query) {
		answer(set, pin_fit_query);
		return NULL;
	}
	extent = ending_at(set, pin_fit_end);
	return extent && je_extent_size(extent) == n_bytes ? extent : NULL;
}

static bool is_beyond(const struct je_extent *extent, size_t n_bytes, size_t alignment)
{
	uintptr_t start = PIN_ALIGN_UP((uintptr_t)extent->addr, alignment);

	return pin_fit_limit && start + n_bytes > pin_fit_limit;
}

struct je_extent *je_eset_fit(struct je_set *set, size_t n_bytes, size_t alignment,
			      bool exact_only, unsigned lg_max_fit)
{
	struct je_extent *extent;

	(void)exact_only; /* for guard pages, which there are not */
	(void)lg_max_fit;
	if (PIN_UNLIKELY(pin_fit_query || pin_fit_end))
		return fit_otherwise(set, n_bytes);
	extent = fit(set, n_bytes, alignment);
	return extent && is_beyond(extent, n_bytes, alignment) ? NULL : extent;
}
