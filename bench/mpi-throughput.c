/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two MPI ranks send buffers to and fro, and check every word. Buffers are malloc'ed and freed
 * around every message; or kept for all messages of a size; or mapped by the program, which
 * replaces the pages behind them before every message by a system call of its own, as runtimes
 * do that do not use libc. Rank 0 prints a line "took SIZE SECONDS" for each message there and
 * back, a line "SIZE MB_PER_S MB_PER_S" for each size, by the fastest and by the slowest tenth
 * of the messages, and at last "wrong N of N", the messages that arrived with wrong data, and
 * "peak_MiB N", what both ranks had in memory at most.
 *   usage: mpi-throughput [kept|replaced] ROUNDS SIZE…     in MiB, or in KiB with K behind it
 */
#include "mpi-bench.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum kind { FRESH, KEPT, REPLACED };

struct buffers {
	uint64_t *out, *in;
	size_t n_bytes;
};

/* What was sent, and of that what arrived with a wrong word. */
static unsigned long n_messages, n_wrong;

/* New pages; at this address, if it is not NULL. */
static void *map(void *at, size_t n_bytes)
{
	void *p = (void *)syscall(SYS_mmap, at, n_bytes, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0L);

	if (p == MAP_FAILED)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return p;
}

static struct buffers new_buffers(enum kind kind, size_t n_bytes)
{
	if (kind == REPLACED)
		return (struct buffers){map(NULL, n_bytes), map(NULL, n_bytes), n_bytes};
	return (struct buffers){mpi_bench_buffer(n_bytes), mpi_bench_buffer(n_bytes), n_bytes};
}

static void free_buffers(enum kind kind, struct buffers buffers)
{
	if (kind == REPLACED)
		return;
	free(buffers.in);
	free(buffers.out);
}

/* For the next message. */
static struct buffers next_buffers(enum kind kind, struct buffers buffers)
{
	if (kind == REPLACED) {
		map(buffers.out, buffers.n_bytes);
		map(buffers.in, buffers.n_bytes);
	}
	if (kind != FRESH)
		return buffers;
	free_buffers(kind, buffers);
	return new_buffers(kind, buffers.n_bytes);
}

static uint64_t word(uint64_t seed, size_t i)
{
	return seed * 0x9e3779b97f4a7c15u + i;
}

static void fill(uint64_t *p, size_t words, uint64_t seed)
{
	for (size_t i = 0; i < words; i++)
		p[i] = word(seed, i);
}

static bool is_wrong(const uint64_t *p, size_t words, uint64_t seed)
{
	size_t i = 0;

	while (i < words && p[i] == word(seed, i))
		i++;
	return i < words;
}

/* One message there and one back; returns rank 0's time in seconds. */
static double round_trip(int rank, struct buffers buffers, uint64_t seed)
{
	size_t n_bytes = buffers.n_bytes, words = n_bytes / sizeof(uint64_t);
	uint64_t *out = buffers.out, *in = buffers.in;
	double began;

	fill(out, words, seed + (uint64_t)rank);
	began = MPI_Wtime();
	if (rank == 0) {
		MPI_Send(out, (int)n_bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(in, (int)n_bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	} else {
		MPI_Recv(in, (int)n_bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Send(out, (int)n_bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	}
	began = MPI_Wtime() - began;
	n_messages++;
	n_wrong += is_wrong(in, words, seed + (uint64_t)(1 - rank));
	return began;
}

static size_t size_of(const char *text)
{
	return (size_t)atol(text) << (strchr(text, 'K') ? 10 : 20);
}

static void print_speed(const char *size, size_t n_bytes, double *times, int n)
{
	double fast = mpi_bench_quantile(times, n, 0.1),
	       slow = mpi_bench_quantile(times, n, 0.9);

	for (int i = 0; i < n; i++)
		printf("took %s %.6f\n", size, times[i]);
	printf("%s %.1f %.1f\n", size, 2e-6 * (double)n_bytes / fast,
	       2e-6 * (double)n_bytes / slow);
}

static void send_all(int rank, int rounds, const char *size, enum kind kind)
{
	double *times = mpi_bench_buffer((size_t)rounds * sizeof *times);
	struct buffers buffers = new_buffers(kind, size_of(size));
	size_t n_bytes = buffers.n_bytes;

	for (int i = 0; i < rounds; i++) {
		buffers = i ? next_buffers(kind, buffers) : buffers;
		times[i] = round_trip(rank, buffers, (uint64_t)n_bytes + 2 * (uint64_t)i);
	}
	free_buffers(kind, buffers);
	if (rank == 0)
		print_speed(size, n_bytes, times, rounds);
	free(times);
}

/* Of this program, not of the one that executed it, which getrusage(2) has in it. */
static unsigned long peak_kib(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	unsigned long kib = 0;
	char line[128];

	while (status && fgets(line, sizeof line, status))
		sscanf(line, "VmHWM: %lu", &kib);
	if (status)
		fclose(status);
	return kib;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	enum kind kind = !strcmp(name, "kept")	     ? KEPT
			 : !strcmp(name, "replaced") ? REPLACED
						     : FRESH;
	char **rest = argv + 1 + (kind != FRESH);
	int rank, rounds = *rest ? atoi(*rest) : 0;
	unsigned long mine[3], all[3] = {0, 0, 0};

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rounds < 1 || !rest[1]) {
		if (rank == 0)
			fprintf(stderr,
				"usage: mpi-throughput [kept|replaced] ROUNDS SIZE...\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	while (*++rest)
		send_all(rank, rounds, *rest, kind);
	mine[0] = n_wrong;
	mine[1] = n_messages;
	mine[2] = peak_kib();
	MPI_Reduce(mine, all, 3, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("wrong %lu of %lu\npeak_MiB %lu\n", all[0], all[1], all[2] >> 10);
	MPI_Finalize();
	return 0;
}
