/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The cost of a child for a process with a large heap that is all resident.
 *
 *     fork-cost plain|pinned MIB fork|vfork|spawn
 *     fork-cost used MIB COUNT KIB
 *
 * With pinned the heap is registered, by the library or, without it, by the program itself;
 * with used the heap has blocks of so many KiB, of which the program registers so many. Prints
 * how long the parent is blocked, how much less memory the machine has while the child exists,
 * and how much of the child's memory is not shared.
 */
#define _GNU_SOURCE
#include "bench/bench.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

static struct heap heap;

static void pin(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());

	need(pd);
	if (pinalloc_stats) {
		bench_pair(pd, heap.blocks[0], 4 * KIB);
		heap_wait_registered();
		return;
	}
	for (size_t i = 0; i < heap.n; i++)
		need(ibv_reg_mr(pd, heap.blocks[i], BLOCK, RDMA_ACCESS));
}

/* Far from each other. A moment later, what the library has registered ahead is, too. */
static void use(size_t n_bytes, size_t count, size_t block)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	size_t n = n_bytes / block;
	char **blocks = malloc(n * sizeof *blocks);

	need(pd && blocks && count && n >= count);
	for (size_t i = 0; i < n; i++) {
		need((blocks[i] = malloc(block)));
		bench_touch(blocks[i], block);
	}
	if (pinalloc_stats) {
		bench_pair(pd, blocks[0], block);
		heap_wait_registered();
	}
	for (size_t i = 0; i < count; i++)
		need(ibv_reg_mr(pd, blocks[i * n / count], block, RDMA_ACCESS));
}

/* Lives until its standard input ends; a program started by vfork or spawn. */
static char *const stays[] = {"/bin/cat", NULL};

static pid_t start(const char *how, const int ends[2])
{
	posix_spawn_file_actions_t actions;
	pid_t child = -1;
	int until = ends[0];
	char byte;

	if (!strcmp(how, "spawn")) {
		need(!posix_spawn_file_actions_init(&actions));
		need(!posix_spawn_file_actions_adddup2(&actions, until, 0));
		need(!posix_spawn(&child, stays[0], &actions, NULL, stays, environ));
		return child;
	}
	child = strcmp(how, "vfork") ? fork() : vfork();
	if (child)
		return child;
	if (!strcmp(how, "vfork")) {
		dup2(until, 0);
		execv(stays[0], stays);
		_exit(1);
	}
	close(ends[1]);
	_exit(read(until, &byte, 1) != 0);
}

static void measure(const char *how)
{
	double available, began, away, own;
	char path[64];
	int ends[2], status;
	pid_t child;

	need(!pipe2(ends, O_CLOEXEC));
	available = bench_kib("/proc/meminfo", "MemAvailable:");
	began = rdma_now();
	child = start(how, ends);
	away = rdma_now() - began;
	need(child > 0);
	/* For a program to be up, and the kernel's counters to be right. */
	usleep(300000);
	available -= bench_kib("/proc/meminfo", "MemAvailable:");
	snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)child);
	own = bench_kib(path, "Private_Dirty:") + bench_kib(path, "Private_Clean:");
	close(ends[1]);
	need(waitpid(child, &status, 0) == child && !status);
	figure("away", "ms", 1e3 * away);
	figure("less available", "MiB", available / 1024);
	figure("the child's own", "MiB", own / 1024);
}

int main(int argc, char **argv)
{
	size_t n_bytes = argc > 3 ? (size_t)atol(argv[2]) * MIB : 0;

	need(n_bytes);
	if (!strcmp(argv[1], "used")) {
		need(argc > 4);
		use(n_bytes, (size_t)atol(argv[3]), (size_t)atol(argv[4]) * KIB);
		measure("fork");
		return 0;
	}
	heap_make(&heap, n_bytes, true);
	if (!strcmp(argv[1], "pinned"))
		pin();
	measure(argv[3]);
	return 0;
}
