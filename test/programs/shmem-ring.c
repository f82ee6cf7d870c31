/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each rank writes into the symmetric heap of the next, and reads back from there, from and to
 * private memory that is allocated anew in every round. Prints "wrong N", of words that differ.
 */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 20
#define WORDS  (64 * 1024)

static long expected(int from, int round, size_t i)
{
	return from * 1000003L + round * 101L + (long)i;
}

static long *filled(int from, int round)
{
	long *words = malloc(WORDS * sizeof *words);

	for (size_t i = 0; words && i < WORDS; i++)
		words[i] = expected(from, round, i);
	return words;
}

static unsigned long n_wrong(const long *words, int from, int round)
{
	unsigned long n = 0;

	for (size_t i = 0; i < WORDS; i++)
		n += words[i] != expected(from, round, i);
	return n;
}

int main(void)
{
	unsigned long wrong = 0;
	long *inbox;
	int me, n, next;

	shmem_init();
	me = shmem_my_pe();
	n = shmem_n_pes();
	next = (me + 1) % n;
	inbox = shmem_malloc(WORDS * sizeof *inbox);
	if (!inbox)
		shmem_global_exit(3);
	for (int round = 0; round < ROUNDS; round++) {
		long *out = filled(me, round), *back = malloc(WORDS * sizeof *back);

		if (!out || !back)
			shmem_global_exit(3);
		shmem_long_put(inbox, out, WORDS, next);
		shmem_barrier_all();
		wrong += n_wrong(inbox, (me + n - 1) % n, round);
		shmem_long_get(back, inbox, WORDS, next);
		wrong += n_wrong(back, me, round);
		shmem_barrier_all();
		free(out);
		free(back);
	}
	printf("wrong %lu\n", wrong);
	shmem_free(inbox);
	shmem_finalize();
	return wrong != 0;
}
