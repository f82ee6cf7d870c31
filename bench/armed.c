/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Two things in one. Preloaded after the library, it registers heap memory as the first thing a
 * program does. As a program it measures the processor time of the thread that looks for memory
 * to register:
 *
 *     armed SECONDS SPARSE_MIB    keeps all processors busy beside a heap of so much that is
 *                                 hardly touched; prints the thread's processor time
 */
#include "bench/bench.h"

#include <dirent.h>
#include <pthread.h>

static double deadline;

static __attribute__((constructor)) void arm(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());

	need(pd);
	bench_pair(pd, memset(malloc(64 * KIB), 1, 64 * KIB), 64 * KIB);
}

static void *be_busy(void *rounds)
{
	while (rdma_now() < deadline)
		for (int i = 0; i < 1000; i++)
			++*(volatile unsigned long *)rounds;
	return rounds;
}

/* A number in a /proc file of a task; 0 if it is another task. */
static double ms_of_task(const char *task)
{
	char path[300], name[32] = "";
	double ns = 0;
	FILE *file;

	snprintf(path, sizeof path, "/proc/self/task/%s/comm", task);
	if ((file = fopen(path, "r"))) {
		need(fgets(name, sizeof name, file));
		fclose(file);
	}
	snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", task);
	if (!strcmp(name, "pinalloc\n") && (file = fopen(path, "r"))) {
		need(fscanf(file, "%lf", &ns) == 1);
		fclose(file);
	}
	return ns * 1e-6;
}

static double ms_of_looks(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *entry;
	double ms = 0;

	need(tasks);
	while ((entry = readdir(tasks)))
		ms += ms_of_task(entry->d_name);
	closedir(tasks);
	return ms;
}

int main(int argc, char **argv)
{
	double seconds = argc > 2 ? atof(argv[1]) : 0;
	size_t n_bytes = argc > 2 ? (size_t)atol(argv[2]) * MIB : 0;
	unsigned long rounds[2] = {0};
	pthread_t other;
	char *sparse;

	need(seconds && (sparse = malloc(n_bytes)));
	for (size_t i = 0; i < n_bytes; i += 16 * MIB)
		sparse[i] = 1;
	deadline = rdma_now() + seconds;
	need(!pthread_create(&other, NULL, be_busy, &rounds[0]));
	be_busy(&rounds[1]);
	need(!pthread_join(other, NULL));
	printf("%.1f ms of %.0f in the thread that looks\n", ms_of_looks(), 2e3 * seconds);
	return 0;
}
