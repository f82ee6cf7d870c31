/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Logic minimisation: cubes of 16 inputs and 40 outputs are made larger, literal by literal
 * and output by output, as long as they stay clear of what the function has not got, and
 * dropped if the others have them already. What a list of cubes has not got is found by
 * halving it until it is plain, and put together again from that: lists, often of few cubes,
 * and families of cubes that grow; a cube is 16 bytes. After what Berkeley's espresso does
 * with its "largest", on functions made up here.
 *   usage: espresso SCALE
 */
#include "cubes.h"

#define TERMS	   60 /* of a function; its cubes are parts of these */
#define CUBES	   800
#define ROOM	   3  /* of a family at first */
#define SHARED	   12 /* outputs of a term at most */
#define OPERATIONS 45 /* functions */

/* Cubes of its own, in one block. */
struct family {
	size_t n, room, unused[2];
	struct cube *cubes;
};

static struct family *family(const struct cube *cube)
{
	struct family *family = need(malloc(sizeof *family));

	*family = (struct family){.n = cube != NULL, .room = ROOM};
	family->cubes = need(malloc(ROOM * sizeof *cube));
	if (cube)
		family->cubes[0] = *cube;
	return family;
}

static void drop_family(struct family *family)
{
	free(family->cubes);
	free(family);
}

static struct family *join(struct family *a, struct family *b)
{
	if (a->n + b->n > a->room) {
		a->room = a->n + b->n + a->n / 2;
		a->cubes = need(realloc(a->cubes, a->room * sizeof *a->cubes));
	}
	memcpy(a->cubes + a->n, b->cubes, b->n * sizeof *b->cubes);
	a->n += b->n;
	drop_family(b);
	return a;
}

static struct family *complement(struct list *list);

static struct family *complement_half(const struct list *list, int input, bool one)
{
	struct cube *within = copy(list->within);

	*(one ? &within->zero : &within->one) &= (uint16_t) ~(1u << input);
	return complement(cofactor(list, within));
}

/* What there is within, and none of the cubes has. Frees the list. */
static struct family *complement(struct list *list)
{
	struct family *rest;
	int input;

	if (!list->n || has_all(list)) {
		rest = family(list->n ? NULL : list->within);
	} else {
		input = choose(list);
		rest = complement_half(list, input, false);
		rest = join(rest, complement_half(list, input, true));
	}
	drop(list);
	return rest;
}

/* Of one output. */
static struct family *missing(const struct list *function, const struct cube *cube, int output,
			      const struct cube *without)
{
	struct cube *within = copy(cube);
	struct list *part;

	within->outputs = (uint64_t)1 << output;
	part = cofactor(function, within);
	for (size_t i = 0; i < part->n; i++)
		if (part->cubes[i] == without)
			part->cubes[i] = part->cubes[--part->n];
	return complement(part);
}

/* Whether the other cubes of the function have it. */
static bool redundant(const struct list *function, const struct cube *cube)
{
	bool all = true;

	for (int output = 0; output < OUTPUTS && all; output++)
		if (cube->outputs >> output & 1) {
			struct family *rest = missing(function, cube, output, cube);

			all = !rest->n;
			drop_family(rest);
		}
	return all;
}

static bool clear_of(struct family *const *off, const struct cube *cube)
{
	for (int output = 0; output < OUTPUTS; output++)
		if (cube->outputs >> output & 1)
			for (size_t i = 0; i < off[output]->n; i++)
				if (meets(&off[output]->cubes[i], cube->one, cube->zero,
					  ~(uint64_t)0))
					return false;
	return true;
}

/* Without its i-th restriction: a literal or an output that it has not got. */
static struct cube raised(struct cube cube, int i)
{
	if (i < INPUTS)
		cube.one |= (uint16_t)(1u << i);
	else if (i < 2 * INPUTS)
		cube.zero |= (uint16_t)(1u << (i - INPUTS));
	else
		cube.outputs |= (uint64_t)1 << (i - 2 * INPUTS);
	return cube;
}

static void expand(struct family *const *off, struct cube *cube)
{
	for (int i = 0; i < 2 * INPUTS + OUTPUTS; i++) {
		struct cube larger = raised(*cube, i);

		if (memcmp(&larger, cube, sizeof larger) && clear_of(off, &larger))
			*cube = larger;
	}
}

static void restrict_inputs(struct cube *cube, size_t n, uint64_t *state)
{
	while (n--) {
		uint16_t bit = (uint16_t)(1u << random_below(state, INPUTS));

		if (cube->one & cube->zero & bit)
			*(random_below(state, 2) ? &cube->one : &cube->zero) &= (uint16_t)~bit;
	}
}

static void draw(struct cube **cubes, uint64_t *state)
{
	struct cube terms[TERMS];

	for (size_t i = 0; i < TERMS; i++) {
		terms[i] = (struct cube){.one = ALL, .zero = ALL};
		restrict_inputs(&terms[i], random_between(state, 2, 5), state);
		for (size_t n = random_between(state, 1, SHARED); n; n--)
			terms[i].outputs |= (uint64_t)1 << random_below(state, OUTPUTS);
	}
	for (size_t i = 0; i < CUBES; i++) {
		cubes[i] = copy(&terms[random_below(state, TERMS)]);
		restrict_inputs(cubes[i], random_between(state, 1, 3), state);
	}
}

static bool is_in_one(const struct cube *cube, struct cube *const *others, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(cube->one & ~others[i]->one) && !(cube->zero & ~others[i]->zero) &&
		    !(cube->outputs & ~others[i]->outputs))
			return true;
	return false;
}

/* The cubes are the function's own, and change in place. */
static size_t minimise(uint64_t *state)
{
	struct list *function = make(CUBES);
	struct cube *cubes[CUBES], everything = {.one = ALL, .zero = ALL};
	struct family *off[OUTPUTS];
	size_t n;

	function->within = NULL;
	draw(cubes, state);
	for (size_t i = 0; i < CUBES; i++)
		function->cubes[function->n++] = cubes[i];
	for (int output = 0; output < OUTPUTS; output++)
		off[output] = missing(function, &everything, output, NULL);
	for (size_t i = 0; i < CUBES; i++)
		if (!is_in_one(cubes[i], cubes, i))
			expand(off, cubes[i]);
	for (size_t i = 0; i < function->n;)
		if (redundant(function, function->cubes[i]))
			function->cubes[i] = function->cubes[--function->n];
		else
			i++;
	n = function->n;
	for (int output = 0; output < OUTPUTS; output++)
		drop_family(off[output]);
	drop(function);
	free_all((char **)cubes, CUBES);
	return n;
}

int main(int argc, char **argv)
{
	uint64_t state = random_seed(0);
	size_t left = 0;

	workload_single(argc, argv);
	for (size_t n = scaled(OPERATIONS); n; n--)
		left += minimise(&state);
	print("cubes_left", left);
	return workload_end(lists_made);
}
