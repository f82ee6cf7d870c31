/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The steps of a stencil code on a grid in three dimensions: buffers for the messages to
 * and from all 26 neighbours, packed, "sent" by a copy and freed; work arrays that live
 * for a part of the step; a list that grows by doubling. One thread.
 *   usage: halo SCALE
 */
#include "workload.h"

#define NEIGHBOURS 26
#define ARRAYS	   4
#define OPERATIONS 400 /* steps */

struct message {
	char *out, *in;
	size_t n_bytes;
};

/* 6 faces, 12 edges, 8 corners; not quite the same in each step, as with particles. */
static size_t message_size(size_t neighbour, uint64_t *state)
{
	if (neighbour < 6)
		return random_between(state, 128 * KIB, MIB);
	if (neighbour < 18)
		return random_between(state, 8 * KIB, 64 * KIB);
	return random_between(state, KIB, 4 * KIB);
}

static void post(struct message *messages, uint64_t *state)
{
	for (size_t i = 0; i < NEIGHBOURS; i++) {
		messages[i].n_bytes = message_size(i, state);
		messages[i].in = need(malloc(messages[i].n_bytes));
		messages[i].out = take_filled(messages[i].n_bytes);
	}
}

static void exchange(struct message *messages)
{
	for (size_t i = 0; i < NEIGHBOURS; i++) {
		memcpy(messages[i].in, messages[i].out, messages[i].n_bytes);
		free(messages[i].out);
	}
	for (size_t i = 0; i < NEIGHBOURS; i++)
		free(messages[i].in);
}

/* Writes each cell once, as vectors of the standard library are filled. */
static void grow_list(size_t n_cells)
{
	size_t room = 8;
	uint64_t *cells = need(malloc(room * sizeof *cells));

	for (size_t i = 0; i < n_cells; i++) {
		if (i == room)
			cells = need(realloc(cells, (room *= 2) * sizeof *cells));
		cells[i] = i;
	}
	free(cells);
}

static void step(uint64_t *state)
{
	struct message messages[NEIGHBOURS];
	char *arrays[ARRAYS];

	for (size_t i = 0; i < ARRAYS; i++)
		arrays[i] = take_pages(random_between(state, MIB, 8 * MIB));
	post(messages, state);
	free_all(arrays, ARRAYS / 2);
	grow_list(random_between(state, 10000, 200000));
	exchange(messages);
	free_all(arrays + ARRAYS / 2, ARRAYS - ARRAYS / 2);
}

int main(int argc, char **argv)
{
	uint64_t state = random_seed(0);
	size_t n;

	workload_single(argc, argv);
	n = scaled(OPERATIONS);
	for (size_t i = 0; i < n; i++)
		step(&state);
	return workload_end(n);
}
