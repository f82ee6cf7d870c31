/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two MPI ranks send each other messages to and fro, from mappings and into mappings that
 * are made for the one message and unmapped after it. Every byte that arrives is checked;
 * rank 0 prints how many messages go a second, by the median round trip. With KEPT, each
 * mapping is used for two messages, is of another size than the one before, and so many others
 * that stay are used in between. usage: watch-mpi KIB ROUNDS [KEPT]
 */
#include "mpi-bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_ROUNDS 10000
#define MOST_KEPT   100

static char *map(size_t n_bytes)
{
	char *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	if (p == MAP_FAILED || madvise(p, n_bytes, MADV_NOHUGEPAGE))
		MPI_Abort(MPI_COMM_WORLD, 2);
	return p;
}

static void send_from(char *p, size_t n_bytes, int to, int fill)
{
	memset(p, fill, n_bytes);
	MPI_Send(p, (int)n_bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD);
}

/* All bytes are the same: the first is right, and each equals the one before. */
static void receive_into(char *p, size_t n_bytes, int from, int fill)
{
	MPI_Recv(p, (int)n_bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (p[0] != (char)fill || memcmp(p, p + 1, n_bytes - 1)) {
		fprintf(stderr, "wrong data\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

/* There and back. */
static void exchange(char *p, size_t n_bytes, int rank, int fill)
{
	if (rank == 0)
		send_from(p, n_bytes, 1, fill);
	receive_into(p, n_bytes, 1 - rank, fill);
	if (rank == 1)
		send_from(p, n_bytes, 0, fill);
}

static char *kept[MOST_KEPT];
static int n_kept;

static void round_trip(int rank, size_t n_bytes, int i)
{
	char *p;

	if (n_kept)
		n_bytes += (size_t)(i % 64) << 12;
	p = map(n_bytes);
	exchange(p, n_bytes, rank, i);
	if (n_kept)
		exchange(p, n_bytes, rank, i + 1);
	munmap(p, n_bytes);
	for (int k = 0; k < n_kept; k++)
		exchange(kept[k], n_bytes, rank, i + k);
}

int main(int argc, char **argv)
{
	int rank, rounds = argc >= 3 ? atoi(argv[2]) : 0;
	size_t n_bytes = argc >= 3 ? (size_t)atol(argv[1]) << 10 : 0;
	static double times[MOST_ROUNDS];

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	n_kept = argc > 3 ? atoi(argv[3]) : 0;
	if (!n_bytes || rounds < 1 || rounds > MOST_ROUNDS || n_kept > MOST_KEPT)
		MPI_Abort(MPI_COMM_WORLD, 2);
	for (int k = 0; k < n_kept; k++)
		kept[k] = map(n_bytes + (64 << 12));
	for (int i = 0; i < 3; i++)
		round_trip(rank, n_bytes, i);
	for (int i = 0; i < rounds; i++) {
		double began = MPI_Wtime();

		round_trip(rank, n_bytes, i);
		times[i] = MPI_Wtime() - began;
	}
	if (rank == 0)
		printf("messages\t1/s\t%.3f\n",
		       (n_kept ? 4 + 2 * n_kept : 2) / mpi_bench_quantile(times, rounds, 0.5));
	MPI_Finalize();
	return 0;
}
