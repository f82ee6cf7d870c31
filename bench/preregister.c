/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The cost of registering much memory.
 *
 *     preregister one MIB STATE      one ibv_reg_mr of all of it
 *     preregister pieces MIB STATE   the same in pieces of 64 MiB
 *     preregister thread MIB STATE   these in a thread of their own, as the library does
 *     preregister heap MIB STATE     under the library: a heap that is there when the
 *                                    first request comes, until all is registered: ahead,
 *                                    or if it is untouched, as its blocks are asked for
 *     preregister warm MIB           touches memory, so that the machine has it
 *
 * STATE is touched or untouched. Prints the time in registrations and the time that
 * passed, both for one GiB, as a heap that grows in steps is never of the size wanted.
 */
#include "bench/bench.h"

#include <pthread.h>
#include <stdatomic.h>

#define PIECE (64 * MIB)

static struct heap heap;

static void say(double registering, double passed, size_t n_bytes)
{
	double gibs = (double)n_bytes / (double)GIB;

	figure("registering", "ms/GiB", 1e3 * registering / gibs);
	figure("until registered", "ms/GiB", 1e3 * passed / gibs);
	figure("memory", "MiB", (double)n_bytes / (double)MIB);
	figure("huge pages", "%",
	       100 * 1024 * bench_kib("/proc/self/smaps_rollup", "AnonHugePages:") /
		       (double)n_bytes);
}

/* The memory that in_pieces() registers, and how long it took. */
struct job {
	struct ibv_pd *pd;
	char *memory;
	size_t n_bytes, piece;
	double seconds;
	atomic_bool done;
};

static void *work(void *argument)
{
	struct job *job = argument;
	double began = rdma_now();

	for (size_t at = 0; at < job->n_bytes; at += job->piece)
		need(ibv_reg_mr(job->pd, job->memory + at, job->piece, RDMA_ACCESS));
	job->seconds = rdma_now() - began;
	job->done = true;
	return NULL;
}

/* Waited for as a heap is (heap_wait_registered). */
static void work_in_thread(struct job *job)
{
	pthread_t thread;

	need(!pthread_create(&thread, NULL, work, job));
	while (!job->done)
		usleep(1000);
	need(!pthread_join(thread, NULL));
}

/* As aligned as a region, for the kernel's huge pages. */
static void in_pieces(struct ibv_pd *pd, size_t n_bytes, size_t piece, bool touched,
		      bool threaded)
{
	struct job job = {pd, aligned_alloc(2 * MIB, n_bytes), n_bytes, piece, 0, false};
	double began;

	need(job.memory);
	if (touched)
		bench_touch(job.memory, n_bytes);
	began = rdma_now();
	if (threaded)
		work_in_thread(&job);
	else
		work(&job);
	say(job.seconds, rdma_now() - began, n_bytes);
	figure("registrations", "", (double)(n_bytes / piece));
}

/* What is not in memory is registered when it is asked for. */
static void ask_for_all(struct ibv_pd *pd)
{
	for (size_t i = 0; i < heap.n; i++)
		bench_pair(pd, heap.blocks[i], BLOCK);
}

static void by_library(struct ibv_pd *pd, size_t n_bytes, bool touched)
{
	struct pinalloc_stats after;
	double began;

	need(pinalloc_stats);
	heap_make(&heap, n_bytes, touched);
	began = rdma_now();
	if (touched) {
		bench_pair(pd, heap.blocks[0], 4 * KIB);
		heap_wait_registered();
	} else {
		ask_for_all(pd);
	}
	began = rdma_now() - began;
	after = bench_stats();
	say(1e-9 * (double)after.registration_ns, began, after.pinned);
	figure("registrations", "", (double)after.mr_created);
}

static void warm(size_t n_bytes)
{
	char *memory = malloc(n_bytes);

	need(memory);
	bench_touch(memory, n_bytes);
}

int main(int argc, char **argv)
{
	size_t n_bytes = argc > 2 ? (size_t)atol(argv[2]) * MIB : 0;
	bool touched = argc > 3 && !strcmp(argv[3], "touched");
	const char *way = argc > 1 ? argv[1] : "";
	struct ibv_pd *pd = NULL;

	need(n_bytes);
	if (!strcmp(way, "warm")) {
		warm(n_bytes);
		return 0;
	}
	need((pd = ibv_alloc_pd(rdma_open())));
	if (!strcmp(way, "one"))
		in_pieces(pd, n_bytes, n_bytes, touched, false);
	else if (!strcmp(way, "pieces") || !strcmp(way, "thread"))
		in_pieces(pd, n_bytes, PIECE, touched, !strcmp(way, "thread"));
	else
		by_library(pd, n_bytes, touched);
	return 0;
}
