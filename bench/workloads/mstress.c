/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Rounds of threads, of which the first thread is one, that keep all they allocate until
 * they end, but for a block freed at random in two of three steps, and in one of four steps
 * swap a block with one of 1000 places they share. Blocks of 1 to 16 words, of which more
 * are freed, or to 64, and one in fifty is 100, 1000 or 10000 times as large; each is
 * written through, and looked through when it is freed. After a round half of the places
 * are emptied. After mimalloc's stress test as it is run with "THREADS 50 25", for more
 * rounds.
 *   usage: mstress SCALE [THREADS]
 */
#include "workload.h"

#define PLACES	  1000
#define EACH	  5000 /* blocks; and half as many that are kept in any case */
#define MORE	  8    /* the eighth thread makes so many times as many */
#define LIST_STEP 100000
#define ROUNDS	  100
#define STREAM	  3 /* as many large blocks as there, by chance */
#define COOKIE	  0x5bd1e995a7c4d3f1u

/* A block is of words that count down to 1: the first says how many there are. */
static uint64_t *_Atomic places[PLACES];
static atomic_size_t made;

struct list {
	uint64_t **blocks;
	size_t n, room;
};

/* As there: one percent more often than asked for. */
static bool chance(unsigned percent, uint64_t *state)
{
	return random_below(state, 100) <= percent;
}

static uint64_t *make(unsigned bits, uint64_t *state)
{
	size_t n = (size_t)1 << random_below(state, bits);
	uint64_t *block;

	if (chance(1, state))
		n *= chance(1, state) ? 10000 : chance(10, state) ? 1000 : 100;
	block = need(malloc(n * sizeof *block));
	for (size_t i = 0; i < n; i++)
		block[i] = (n - i) ^ COOKIE;
	return block;
}

static void drop(uint64_t *block)
{
	size_t n = block ? block[0] ^ COOKIE : 0;

	for (size_t i = 0; i < n; i++)
		if ((block[i] ^ COOKIE) != n - i)
			give_up("a block is not what it was");
	free(block);
}

static void drop_all(struct list *list)
{
	for (size_t i = 0; i < list->n; i++)
		drop(list->blocks[i]);
	free(list->blocks);
}

static void add(struct list *list, uint64_t *block)
{
	if (list->n == list->room) {
		list->room += LIST_STEP;
		list->blocks = need(realloc(list->blocks, list->room * sizeof *list->blocks));
	}
	list->blocks[list->n++] = block;
}

static void disturb(struct list *list, uint64_t *state)
{
	uint64_t **block;

	if (chance(66, state) && list->n) {
		block = &list->blocks[random_below(state, list->n)];
		drop(*block);
		*block = NULL;
	}
	if (chance(25, state) && list->n) {
		block = &list->blocks[random_below(state, list->n)];
		*block = atomic_exchange(&places[random_below(state, PLACES)], *block);
	}
}

static void *work(void *number)
{
	uint64_t state = random_seed(STREAM + (uintptr_t)number);
	size_t n = EACH * ((uintptr_t)number % MORE + 1), n_kept = n / 2;
	struct list list = {0}, kept = {need(malloc(n_kept * sizeof *kept.blocks)), 0, n_kept};

	atomic_fetch_add(&made, n + n_kept);
	while (n || kept.n < n_kept) {
		if (kept.n == n_kept || (n && chance(50, &state))) {
			n--;
			add(&list, make(5, &state));
		} else {
			add(&kept, make(7, &state));
		}
		disturb(&list, &state);
	}
	drop_all(&kept);
	drop_all(&list);
	return NULL;
}

static void one_round(uint64_t *state, bool last)
{
	pthread_t threads[MOST_THREADS];

	for (uintptr_t i = 1; i < workload_threads; i++)
		threads[i] = start(work, (void *)i);
	work(NULL);
	for (unsigned i = 1; i < workload_threads; i++)
		finish(threads[i]);
	for (size_t i = 0; i < PLACES; i++)
		if (last || chance(50, state))
			drop(atomic_exchange(&places[i], NULL));
}

int main(int argc, char **argv)
{
	uint64_t state = random_seed(MOST_THREADS);

	workload_threaded(argc, argv);
	for (size_t left = scaled(ROUNDS); left; left--)
		one_round(&state, left == 1);
	return workload_end(made);
}
