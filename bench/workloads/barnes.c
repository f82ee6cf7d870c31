/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bodies that attract each other: in each step a tree of cells is made of them, from two
 * arrays that were allocated once, and each body walks it; a cell that is far enough away is
 * one body. After Barnes and Hut as SPLASH-2's BARNES has it, which mimalloc-bench runs with
 * 163840 bodies for a step more: some twenty calls of malloc in all, of which some are large.
 * So what counts here is where the memory lies, not malloc. usage: barnes SCALE
 */
#include "workload.h"

#include <math.h>

#define BODIES	 163840.0
#define STEPS	 2
#define STEP	 0.025
#define SOFTENED 0.0025 /* the square of 0.05 */
#define LEAF	 10	/* bodies at most */
#define DEEPEST	 60
#define NONE	 UINT32_MAX

struct body {
	double at[3], speed[3], pull[3];
	uint32_t next; /* in its leaf */
};

/* A cell without parts is a leaf. */
struct cell {
	double middle[3], centre[3], mass, half;
	uint32_t parts[8], first, n;
	bool divided;
};

static struct body *bodies;
static struct cell *cells;
static size_t n_bodies, n_cells, most_cells;

static uint32_t new_cell(const double *middle, double half)
{
	struct cell *cell = &cells[n_cells];

	if (n_cells == most_cells)
		give_up("there are too few cells");
	*cell = (struct cell){.half = half, .first = NONE};
	memcpy(cell->middle, middle, sizeof cell->middle);
	for (int i = 0; i < 8; i++)
		cell->parts[i] = NONE;
	return (uint32_t)n_cells++;
}

static uint32_t part_of(uint32_t cell, const double *at)
{
	double middle[3], half = cells[cell].half / 2;
	int octant = 0;

	for (int i = 0; i < 3; i++) {
		bool upper = at[i] >= cells[cell].middle[i];

		octant |= upper << i;
		middle[i] = cells[cell].middle[i] + (upper ? half : -half);
	}
	if (cells[cell].parts[octant] == NONE)
		cells[cell].parts[octant] = new_cell(middle, half);
	return cells[cell].parts[octant];
}

static void insert(uint32_t cell, uint32_t body, int depth);

static void divide(uint32_t cell, int depth)
{
	uint32_t body = cells[cell].first, next;

	cells[cell].divided = true;
	for (; body != NONE; body = next) {
		next = bodies[body].next;
		insert(part_of(cell, bodies[body].at), body, depth + 1);
	}
}

static void insert(uint32_t cell, uint32_t body, int depth)
{
	while (cells[cell].divided) {
		cell = part_of(cell, bodies[body].at);
		depth++;
	}
	bodies[body].next = cells[cell].first;
	cells[cell].first = body;
	if (++cells[cell].n > LEAF && depth < DEEPEST)
		divide(cell, depth);
}

static void add_mass(struct cell *cell, const double *at, double mass)
{
	for (int i = 0; i < 3; i++)
		cell->centre[i] += (at[i] - cell->centre[i]) * mass / (cell->mass + mass);
	cell->mass += mass;
}

/* Parts come after what they are parts of. */
static void weigh(void)
{
	for (size_t c = n_cells; c--;) {
		struct cell *cell = &cells[c];
		uint32_t body = cell->divided ? NONE : cell->first;

		for (; body != NONE; body = bodies[body].next)
			add_mass(cell, bodies[body].at, 1);
		for (int i = 0; i < 8; i++)
			if (cell->parts[i] != NONE)
				add_mass(cell, cells[cell->parts[i]].centre,
					 cells[cell->parts[i]].mass);
	}
}

static double distance(const double *a, const double *b)
{
	return (a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1]) +
	       (a[2] - b[2]) * (a[2] - b[2]);
}

static void attract(struct body *body, const double *to, double mass)
{
	double square = distance(body->at, to) + SOFTENED;

	mass /= square * sqrt(square) * (double)n_bodies;
	for (int i = 0; i < 3; i++)
		body->pull[i] += (to[i] - body->at[i]) * mass;
}

static void walk(struct body *body, const struct cell *cell)
{
	if (4 * cell->half * cell->half < distance(body->at, cell->centre)) {
		attract(body, cell->centre, cell->mass);
		return;
	}
	for (uint32_t i = cell->divided ? NONE : cell->first; i != NONE; i = bodies[i].next)
		attract(body, bodies[i].at, 1);
	for (int i = 0; i < 8; i++)
		if (cell->parts[i] != NONE)
			walk(body, &cells[cell->parts[i]]);
}

static void step(void)
{
	double most = 0, middle[3] = {0};

	for (size_t i = 0; i < n_bodies; i++)
		most = fmax(most, sqrt(distance(bodies[i].at, middle)));
	n_cells = 0;
	new_cell(middle, most + 1e-6);
	for (size_t i = 0; i < n_bodies; i++)
		insert(0, (uint32_t)i, 0);
	weigh();
	for (size_t i = 0; i < n_bodies; i++) {
		memset(bodies[i].pull, 0, sizeof bodies[i].pull);
		walk(&bodies[i], &cells[0]);
	}
	for (size_t i = 0; i < n_bodies; i++)
		for (int j = 0; j < 3; j++) {
			bodies[i].speed[j] += STEP * bodies[i].pull[j];
			bodies[i].at[j] += STEP * bodies[i].speed[j];
		}
}

/* Denser towards the middle, after Plummer. */
static void place(void)
{
	uint64_t state = random_seed(0);

	for (size_t i = 0; i < n_bodies; i++) {
		double part = ((double)random_below(&state, 999000) + 1) / 1e6;
		double radius = 1 / sqrt(pow(part, -2 / 3.0) - 1), square;

		do {
			for (int j = 0; j < 3; j++)
				bodies[i].at[j] = (double)random_below(&state, 2000001) / 1e6 -
						  1;
			square = distance(bodies[i].at, (double[3]){0});
		} while (square > 1 || square < 1e-9);
		for (int j = 0; j < 3; j++)
			bodies[i].at[j] *= radius / sqrt(square);
	}
}

int main(int argc, char **argv)
{
	workload_single(argc, argv);
	n_bodies = scaled(BODIES);
	most_cells = 2 * n_bodies + 1000;
	bodies = need(calloc(n_bodies, sizeof *bodies));
	cells = need(malloc(most_cells * sizeof *cells));
	place();
	for (int i = 0; i < STEPS; i++)
		step();
	print("cells", n_cells);
	return workload_end(STEPS * n_bodies);
}
