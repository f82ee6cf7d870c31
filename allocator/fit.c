/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/fit.h"
#include "allocator/pages.h"

static struct pin_page *record(uint32_t page)
{
	return &pin_pages.records[page];
}

static uint32_t priority(uint32_t page)
{
	page *= 2654435761u;
	return page ^ page >> 15;
}

static uint32_t longest_in(uint32_t tree)
{
	return tree ? record(tree)->longest : 0;
}

static void update(uint32_t tree)
{
	struct pin_page *page = record(tree);
	uint32_t left = longest_in(page->left), right = longest_in(page->right);
	uint32_t longest = left > right ? left : right;

	page->longest = page->length > longest ? page->length : longest;
}

/* Joins two trees, all of whose second is behind the first. */
static uint32_t join(uint32_t a, uint32_t b)
{
	if (!a || !b)
		return a ? a : b;
	if (priority(a) > priority(b)) {
		record(a)->right = join(record(a)->right, b);
		update(a);
		return a;
	}
	record(b)->left = join(a, record(b)->left);
	update(b);
	return b;
}

/* Divides a tree into what is before `page` and what is behind it. */
static void divide(uint32_t tree, uint32_t page, uint32_t *before, uint32_t *behind)
{
	uint32_t part;

	if (!tree) {
		*before = *behind = 0;
	} else if (tree < page) {
		divide(record(tree)->right, page, &part, behind);
		record(tree)->right = part;
		*before = tree;
		update(tree);
	} else {
		divide(record(tree)->left, page, before, &part);
		record(tree)->left = part;
		*behind = tree;
		update(tree);
	}
}

static uint32_t inserted(uint32_t tree, uint32_t page)
{
	uint32_t before, behind;

	if (!tree || priority(page) > priority(tree)) {
		divide(tree, page, &before, &behind);
		record(page)->left = before;
		record(page)->right = behind;
		tree = page;
	} else if (page < tree) {
		record(tree)->left = inserted(record(tree)->left, page);
	} else {
		record(tree)->right = inserted(record(tree)->right, page);
	}
	update(tree);
	return tree;
}

static uint32_t deleted(uint32_t tree, uint32_t page)
{
	if (tree == page)
		return join(record(page)->left, record(page)->right);
	if (page < tree)
		record(tree)->left = deleted(record(tree)->left, page);
	else
		record(tree)->right = deleted(record(tree)->right, page);
	update(tree);
	return tree;
}

void pin_fit_insert(uint32_t *root, uint32_t page)
{
	*root = inserted(*root, page);
}

void pin_fit_delete(uint32_t *root, uint32_t page)
{
	*root = deleted(*root, page);
}

/* Whether the request fits, where it would begin in this run. */
static bool has_room(uint32_t page, const struct pin_fit *fit)
{
	uint64_t base = pin_pages.base >> PIN_UNIT_SHIFT, mask = fit->alignment - 1;
	uint64_t from = ((base + page + mask) & ~mask) - base, to = from + fit->n_pages;

	return to <= (uint64_t)page + record(page)->length;
}

/* The lowest run of at least so many pages that has room; looks at *tries of them at most. */
static uint32_t lowest(uint32_t tree, uint32_t n_pages, const struct pin_fit *fit, int *tries)
{
	uint32_t page;

	if (longest_in(tree) < n_pages || *tries <= 0)
		return 0;
	page = lowest(record(tree)->left, n_pages, fit, tries);
	if (page)
		return page;
	if (record(tree)->length >= n_pages) {
		if (has_room(tree, fit))
			return tree;
		--*tries;
	}
	return lowest(record(tree)->right, n_pages, fit, tries);
}

/*
 * A run that is long enough has room unless the request is aligned. Runs that are long enough
 * wherever they begin come after so many others that fit or not.
 */
#define TRIES 64

uint32_t pin_fit_find(uint32_t root, const struct pin_fit *fit)
{
	uint64_t any = (uint64_t)fit->n_pages + fit->alignment - 1;
	int tries = TRIES;
	uint32_t page = lowest(root, fit->n_pages, fit, &tries);

	if (page || tries > 0 || any > UINT32_MAX)
		return page;
	tries = TRIES;
	return lowest(root, (uint32_t)any, fit, &tries);
}

uint32_t pin_fit_longest(uint32_t root)
{
	uint32_t longest = longest_in(root), left;

	while (root && record(root)->length != longest) {
		left = record(root)->left;
		root = longest_in(left) == longest ? left : record(root)->right;
	}
	return root;
}

uint32_t pin_fit_next(uint32_t root, uint32_t page)
{
	uint32_t next = 0;

	while (root) {
		if (root < page) {
			root = record(root)->right;
		} else {
			next = root;
			root = record(root)->left;
		}
	}
	return next;
}
