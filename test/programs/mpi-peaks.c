/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranks whose peaks are known: in three waves rank r allocates (r + 1) * MIB MiB in
 * hold_peak(), frees it, and passes messages around the ring of ranks; every word that arrives
 * is checked. Each rank prints the true figures: what was live before its peak, by the
 * library's count (0 without it), and what it then allocated.
 *
 *     mpi-peaks [MIB [wait]]
 *
 * With "wait" all ranks print their process after their peaks, and wait to be killed.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/pinalloc.h"
#include "wrong.h"

#define MIB   ((size_t)1 << 20)
#define WAVES 3

/* A list through the blocks' first words: nothing else is allocated. */
struct block {
	struct block *next;
};

static int rank, n_ranks;

static void check(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "rank %d: %s\n", rank, what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static struct block *touch(void *memory, size_t n_bytes, struct block *next)
{
	struct block *block = memory;

	check(memory != NULL, "out of memory");
	memset(memory, 1, n_bytes);
	block->next = next;
	return block;
}

/*
 * One block of half of it, and the rest as blocks of 1 MiB, every other one of a large
 * alignment. All by one call, at which the heap must grow in every rank, whatever MPI has left
 * of it.
 */
__attribute__((noinline)) static struct block *hold_peak(size_t n_mib)
{
	struct block *held = NULL;

	for (size_t size = n_mib / 2; n_mib; n_mib -= size, size = 1) {
		void *p = NULL;

		check(!posix_memalign(&p, n_mib % 2 ? 65536 : 64, size * MIB),
		      "posix_memalign");
		held = touch(p, size * MIB, held);
	}
	return held;
}

static void drop(struct block *held)
{
	while (held) {
		struct block *next = held->next;

		free(held);
		held = next;
	}
}

static uint64_t live(void)
{
	struct pinalloc_stats stats = {0};

	if (pinalloc_stats)
		pinalloc_stats(&stats, sizeof stats);
	return stats.live;
}

/* Large messages from each rank to the next; how many words arrived wrong. */
static unsigned long pass_messages(size_t n_bytes)
{
	size_t words = n_bytes / sizeof(uint64_t);
	uint64_t *out = malloc(n_bytes), *in = malloc(n_bytes);
	int next = (rank + 1) % n_ranks, last = (rank + n_ranks - 1) % n_ranks;
	struct wrong wrong;

	check(out && in, "out of memory");
	for (size_t i = 0; i < words; i++)
		out[i] = wrong_word((uint64_t)rank, i);
	MPI_Sendrecv(out, (int)words, MPI_UINT64_T, next, 0, in, (int)words, MPI_UINT64_T, last,
		     0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	wrong_find(&wrong, in, n_bytes, (uint64_t)last);
	free(out);
	free(in);
	return wrong.count;
}

static unsigned long wave(size_t n_mib)
{
	unsigned long wrong = 0;
	uint64_t before = live();
	struct block *held = hold_peak(n_mib);

	MPI_Barrier(MPI_COMM_WORLD);
	drop(held);
	for (size_t mib = 1; mib <= 4; mib *= 2)
		wrong += pass_messages(mib * MIB);
	printf("rank %d before %lu asked %zu wrong %lu\n", rank, before, n_mib * MIB, wrong);
	return wrong;
}

static void await_death(void)
{
	printf("rank %d is process %d\n", rank, getpid());
	fflush(stdout);
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	size_t mib = argc > 1 ? strtoul(argv[1], NULL, 0) : 50;
	bool waits = argc > 2 && !strcmp(argv[2], "wait");
	unsigned long wrong = 0;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
	wrong += pass_messages(MIB);
	for (size_t i = 1; i <= WAVES; i++)
		wrong += wave(((size_t)rank + 1) * mib * i / WAVES);
	if (waits)
		await_death();
	MPI_Finalize();
	return wrong != 0;
}
