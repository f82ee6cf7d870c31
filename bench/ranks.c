/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Many ranks on a node: each registers 1 MiB of new memory and sends it to the next one, a few
 * times. Rank 0 prints how many bytes were wrong, how long the start took, from the time in
 * BEGAN (seconds since the epoch) until all ranks had met, and of what the kernel keeps for
 * each rank the means over all.
 */
#include "bench/mpi-bench.h"

#include <dirent.h>
#include <infiniband/verbs.h>
#include <string.h>
#include <time.h>

#define N_ROUNDS 4
#define N_BYTES	 (1 << 20)

enum figure { THREADS, DESCRIPTORS, MAPPINGS, TABLES_KIB, PRIVATE_KIB, N_FIGURES };

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The sum of the numbers in the lines that begin with the name; if it is NULL, the lines. */
static double sum_of(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	char line[1024];
	double sum = 0;

	if (!file)
		MPI_Abort(MPI_COMM_WORLD, 1);
	while (fgets(line, sizeof line, file)) {
		if (!name)
			sum++;
		else if (!strncmp(line, name, strlen(name)))
			sum += strtod(line + strlen(name), NULL);
	}
	fclose(file);
	return sum;
}

static double n_entries(const char *path)
{
	DIR *directory = opendir(path);
	double n = 0;

	if (!directory)
		MPI_Abort(MPI_COMM_WORLD, 1);
	while (readdir(directory))
		n++;
	closedir(directory);
	return n - 3; /* ".", "..", and the directory itself */
}

static void measure(double figures[N_FIGURES])
{
	figures[THREADS] = sum_of("/proc/self/status", "Threads:");
	figures[TABLES_KIB] = sum_of("/proc/self/status", "VmPTE:");
	figures[DESCRIPTORS] = n_entries("/proc/self/fd");
	figures[MAPPINGS] = sum_of("/proc/self/maps", NULL);
	figures[PRIVATE_KIB] = sum_of("/proc/self/smaps_rollup", "Private_Clean:") +
			       sum_of("/proc/self/smaps_rollup", "Private_Dirty:");
}

static struct ibv_pd *open_device(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = devices && *devices ? ibv_open_device(*devices) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;

	if (!pd)
		MPI_Abort(MPI_COMM_WORLD, 1);
	ibv_free_device_list(devices);
	return pd;
}

/* Returns how many bytes arrived wrong. */
static int exchange(struct ibv_pd *pd, int rank, int n_ranks, int round)
{
	unsigned char *out = mpi_bench_buffer(N_BYTES), *in = mpi_bench_buffer(N_BYTES);
	struct ibv_mr *mr = ibv_reg_mr(pd, out, N_BYTES, IBV_ACCESS_LOCAL_WRITE);
	int from = (rank + n_ranks - 1) % n_ranks, wrong = 0;

	if (!mr)
		MPI_Abort(MPI_COMM_WORLD, 1);

	memset(out, rank + round, N_BYTES);
	MPI_Sendrecv(out, N_BYTES, MPI_BYTE, (rank + 1) % n_ranks, 0, in, N_BYTES, MPI_BYTE,
		     from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < N_BYTES; i++)
		wrong += in[i] != (unsigned char)(from + round);
	ibv_dereg_mr(mr);
	free(out);
	free(in);
	return wrong;
}

int main(int argc, char **argv)
{
	const char *began = getenv("BEGAN");
	double mine[N_FIGURES], sums[N_FIGURES], start;
	int rank, n_ranks, wrong = 0, all_wrong;
	struct ibv_pd *pd;

	MPI_Init(&argc, &argv);
	pd = open_device();
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
	MPI_Barrier(MPI_COMM_WORLD);
	start = began ? now() - strtod(began, NULL) : 0;
	for (int round = 0; round < N_ROUNDS; round++)
		wrong += exchange(pd, rank, n_ranks, round);
	measure(mine);
	MPI_Reduce(mine, sums, N_FIGURES, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Reduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank) {
		printf("wrong %d start %.2f", all_wrong, start);
		for (int i = 0; i < N_FIGURES; i++)
			printf(" %.1f", sums[i] / n_ranks);
		puts("");
	}
	MPI_Finalize();
	return all_wrong && !rank;
}
