/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An array language: an array never changes its size, what is appended to is copied into a new
 * one. First ten expressions, each with operands and temporaries of n*n and 2*n*n doubles. Then
 * 39 arrays, each a little larger than the last, a third longer in a new generation, and that
 * copied once more; and beside them one array that is appended to 60 times.
 *   usage: arrays SCALE    about 2 GiB * SCALE is live at the peak
 */
#include "peak.h"

#define MATRICES 6
#define OPERANDS 3 /* the first of them */
#define SERIES	 39
#define UNIT	 100000.0 /* doubles by which one of the series is larger than the last */
#define APPENDED 60
#define PIECE	 500000.0 /* doubles */

static const double sides[] = {1000, 1300, 1700, 2100, 2500, 3000, 2800, 2000, 3100, 3200};
static const size_t squares[MATRICES] = {1, 2, 1, 1, 2, 2};

struct array {
	char *bytes;
	size_t n;
};

static uint64_t state;

/* No two are the same, nor round. */
static size_t size(double n_doubles)
{
	double jitter = 0.97 + (double)random_below(&state, 600) / 1e4;

	return scaled(n_doubles * jitter * (double)sizeof(double));
}

static struct array make(size_t n)
{
	return (struct array){peak_take_pages(n), n};
}

static void drop(struct array *array)
{
	peak_free(array->bytes, array->n);
	*array = (struct array){0};
}

/* `with` is freed by who made it. */
static struct array append(const struct array *head, size_t with)
{
	struct array longer = make(head->n + with);

	if (head->n)
		memcpy(longer.bytes, head->bytes, head->n);
	return longer;
}

static void drop_all(struct array *arrays, size_t n)
{
	for (size_t i = 0; i < n; i++)
		drop(&arrays[i]);
}

static void drop_in_any_order(struct array *arrays, size_t n)
{
	for (; n; n--) {
		size_t i = random_below(&state, n);

		drop(&arrays[i]);
		arrays[i] = arrays[n - 1];
	}
}

/* One result is given up at once, the others when the expression ends. */
static void expression(double side)
{
	struct array matrices[MATRICES], temporary;
	size_t n = size(side * side), i = 0;

	for (; i < OPERANDS; i++)
		matrices[i] = make(squares[i] * n);
	temporary = make(n);
	drop(&temporary);
	for (; i < MATRICES; i++)
		matrices[i] = make(squares[i] * n);
	drop_in_any_order(matrices, MATRICES);
}

/* Those first made leave holes that are too small for the next, unless neighbours merge. */
static void series(struct array *longer, struct array *copies)
{
	struct array first[SERIES];

	for (int i = 0; i < SERIES; i++)
		first[i] = make(size(UNIT * (i + 1)));
	for (int i = 0; i < SERIES; i++)
		longer[i] = append(&first[i], first[i].n / 3);
	drop_all(first, SERIES);
	for (int i = 0; i < SERIES; i++)
		copies[i] = append(&longer[i], 0);
}

static struct array history(void)
{
	struct array all = {0}, piece, longer;

	for (int i = 0; i < APPENDED; i++) {
		piece = make(size(PIECE));
		longer = append(&all, piece.n);
		drop(&all);
		drop(&piece);
		all = longer;
	}
	return all;
}

int main(int argc, char **argv)
{
	struct array longer[SERIES], copies[SERIES], all;

	workload_single(argc, argv);
	state = random_seed(0);
	for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
		expression(sides[i]);
	series(longer, copies);
	all = history();
	drop_all(longer, SERIES);
	drop_all(copies, SERIES);
	drop(&all);
	return peak_end();
}
