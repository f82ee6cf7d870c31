/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Cubes, the terms of logic functions, and lists of those that have a part of another cube:
 * in blocks of their own, as espresso.c has them.
 */
#ifndef CUBES_H
#define CUBES_H

#include "workload.h"

#define INPUTS	16
#define OUTPUTS 40
#define ALL	((1u << INPUTS) - 1)
#define SPARE	3 /* places of a list */

/* Inputs may be 1, or 0; without a literal they may be both. */
struct cube {
	uint16_t one, zero;
	uint32_t unused;
	uint64_t outputs;
};

/* What the cubes have of that one: they are the function's own. */
struct list {
	struct cube *within;
	size_t n;
	const struct cube *cubes[];
};

static size_t lists_made;

static inline struct cube *copy(const struct cube *cube)
{
	struct cube *a = need(malloc(sizeof *a));

	*a = *cube;
	return a;
}

static inline struct list *make(size_t n)
{
	struct list *list = need(malloc(sizeof *list + n * sizeof *list->cubes));

	lists_made++;
	list->n = 0;
	return list;
}

static inline void drop(struct list *list)
{
	free(list->within);
	free(list);
}

static inline bool meets(const struct cube *cube, uint32_t one, uint32_t zero, uint64_t outputs)
{
	return (((cube->one & one) | (cube->zero & zero)) & ALL) == ALL &&
	       cube->outputs & outputs;
}

static inline size_t count(const struct list *list, const struct cube *within)
{
	size_t n = 0;

	for (size_t i = 0; i < list->n; i++)
		n += meets(list->cubes[i], within->one, within->zero, within->outputs);
	return n;
}

/* Takes the cube over. */
static inline struct list *cofactor(const struct list *list, struct cube *within)
{
	struct list *part = make(count(list, within) + SPARE);

	part->within = within;
	for (size_t i = 0; i < list->n; i++)
		if (meets(list->cubes[i], within->one, within->zero, within->outputs))
			part->cubes[part->n++] = list->cubes[i];
	return part;
}

static inline bool has_all(const struct list *list)
{
	const struct cube *in = list->within;

	for (size_t i = 0; i < list->n; i++)
		if (!(in->one & ~list->cubes[i]->one) && !(in->zero & ~list->cubes[i]->zero))
			return true;
	return false;
}

/* The input with the most literals, of both kinds if there is one. */
static inline int choose(const struct list *list)
{
	size_t most = 0;
	int best = -1;

	for (int input = 0; input < INPUTS; input++) {
		size_t ones = 0, zeros = 0, n;

		if (!(list->within->one & list->within->zero & 1u << input))
			continue;
		for (size_t i = 0; i < list->n; i++) {
			ones += !(list->cubes[i]->zero >> input & 1);
			zeros += !(list->cubes[i]->one >> input & 1);
		}
		n = ones + zeros + (ones && zeros ? 2 * list->n : 0);
		if (n > most) {
			most = n;
			best = input;
		}
	}
	return best;
}

#endif
