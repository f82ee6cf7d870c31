/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The cost of watching memory that is not heap while it is registered, in mappings of the
 * program's own, of small pages unless it says otherwise.
 *
 *     watch unmap KIB registered|never N   munmap() of touched memory
 *     watch pairs KIB N                    registration and deregistration of the same, and
 *                                          the first write to each page after it
 *     watch messages KIB N write|copy      for each message: map, fill, register, send,
 *                                          deregister, unmap; a copy where there is no adapter
 *     watch huge own|heap CASE             MiB of 64 in huge pages, as root:
 *         first        at first touch, which is the registration where it is the program's own
 *         all, half    of small pages when khugepaged has seen them, all or every second
 *                      one touched, not registered
 *         registered   the same of all, registered
 *         parts        first, then with 64 KiB of each 2 MiB registered, then with none again
 */
#include "bench/bench.h"

#include <sys/mman.h>

#define MOST_TIMES 10000
#define HUGE	   (64 * MIB)
#define PAGE	   (4 * KIB)

static struct ibv_pd *pd;
static double times[MOST_TIMES], writes[MOST_TIMES];

static char *map(size_t n_bytes)
{
	char *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	need(p != MAP_FAILED && !madvise(p, n_bytes, MADV_NOHUGEPAGE));
	return p;
}

static struct ibv_mr *registered(void *p, size_t n_bytes)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, p, n_bytes, RDMA_ACCESS);

	need(mr);
	return mr;
}

/*
 * Registers heap memory, which makes the library start its threads; waits until they are idle.
 */
static void begin(void)
{
	char *p = malloc(64 * KIB);

	need((pd = ibv_alloc_pd(rdma_open())) && p);
	bench_touch(p, 64 * KIB);
	bench_pair(pd, p, 64 * KIB);
	usleep(200000);
}

/* For the trace of system calls. */
static void mark(const char *what)
{
	ssize_t ignored = write(-1, what, strlen(what));

	(void)ignored;
}

/* --- times ------------------------------------------------------------------------ */

static double unmapping(size_t n_bytes, bool is_registered)
{
	char *p = map(n_bytes);
	struct ibv_mr *mr;
	double began;

	bench_touch(p, n_bytes);
	mr = is_registered ? registered(p, n_bytes) : NULL;
	mark("begin");
	began = rdma_now();
	need(!munmap(p, n_bytes));
	began = rdma_now() - began;
	mark("end");
	need(!mr || !ibv_dereg_mr(mr));
	return 1e6 * began;
}

static void time_unmap(size_t n_bytes, bool is_registered, size_t n)
{
	for (size_t i = 0; i < n; i++)
		times[i] = unmapping(n_bytes, is_registered);
	figure("munmap", "us", bench_quantile(times, n, 0.5));
}

/* Microseconds since then, which becomes now. */
static double lap(double *since)
{
	double now = rdma_now(), us = 1e6 * (now - *since);

	*since = now;
	return us;
}

/* Of memory that was never registered before. */
static void time_first(size_t n_bytes, size_t n)
{
	char *p = map(n * n_bytes);
	double since;

	bench_touch(p, n * n_bytes);
	since = rdma_now();
	for (size_t i = 0; i < n; i++) {
		bench_pair(pd, p + i * n_bytes, n_bytes);
		times[i] = lap(&since);
	}
	figure("first", "us", bench_quantile(times, n, 0.5));
	need(!munmap(p, n * n_bytes));
}

static void time_pairs(size_t n_bytes, size_t n)
{
	char *p;
	double since;

	if (n_bytes < MIB)
		time_first(n_bytes, n);
	p = map(n_bytes);
	bench_touch(p, n_bytes);
	for (size_t i = 0; i < n; i++) {
		since = rdma_now();
		bench_pair(pd, p, n_bytes);
		times[i] = lap(&since);
		bench_touch(p, n_bytes);
		writes[i] = lap(&since);
	}
	figure("pair", "us", bench_quantile(times, n, 0.5));
	figure("write", "us", bench_quantile(writes, n, 0.5));
}

static void message(struct rdma *rdma, size_t n_bytes, struct ibv_mr *landing)
{
	char *p = map(n_bytes);
	struct ibv_mr *mr;

	memset(p, 1, n_bytes);
	mr = registered(p, n_bytes);
	if (rdma)
		need(!rdma_write(rdma, p, mr->lkey, landing->addr, landing->rkey, n_bytes));
	else
		memcpy(landing->addr, p, n_bytes);
	need(!ibv_dereg_mr(mr) && !munmap(p, n_bytes));
}

/* By the median of a message, as other programs may take the processor for some. */
static void time_messages(size_t n_bytes, size_t n, bool by_adapter)
{
	struct ibv_mr *landing = registered(malloc(n_bytes), n_bytes);
	struct rdma rdma;
	double since;

	if (by_adapter)
		rdma_connect(&rdma, pd);
	message(by_adapter ? &rdma : NULL, n_bytes, landing);
	since = rdma_now();
	for (size_t i = 0; i < n; i++) {
		message(by_adapter ? &rdma : NULL, n_bytes, landing);
		times[i] = lap(&since);
	}
	figure("messages", "1/s", 1e6 / bench_quantile(times, n, 0.5));
}

/* --- huge pages ------------------------------------------------------------------- */

static double huge_mib(void)
{
	return bench_kib("/proc/self/smaps_rollup", "AnonHugePages:") / 1024;
}

/* When khugepaged has been everywhere: twice from the beginning, and once more. */
static void wait_khugepaged(void)
{
	static const char path[] = "/sys/kernel/mm/transparent_hugepage/khugepaged/full_scans";
	double until = bench_kib(path, "") + 3, deadline = rdma_now() + 120;

	while (bench_kib(path, "") < until) {
		need(rdma_now() < deadline);
		usleep(10000);
	}
}

/* Behind the heap's first 32 MiB, which are of small pages. */
static char *huge_block(bool is_heap)
{
	char *p = NULL;

	if (is_heap) {
		need(malloc(HUGE) && (p = aligned_alloc(2 * MIB, HUGE)));
		return p;
	}
	p = map(HUGE + 2 * MIB);
	p += -(uintptr_t)p % (2 * MIB);
	need(!madvise(p, HUGE, MADV_HUGEPAGE));
	return p;
}

static double at_first_touch(char *p, bool is_heap)
{
	double before = huge_mib();

	if (is_heap)
		bench_touch(p, HUGE);
	else
		registered(p, HUGE);
	return huge_mib() - before;
}

static double collapsed(char *p, size_t stride, bool is_registered)
{
	double before;

	need(!madvise(p, HUGE, MADV_NOHUGEPAGE));
	for (size_t at = 0; at < HUGE; at += stride)
		((volatile char *)p)[at] = 1;
	if (is_registered)
		registered(p, HUGE);
	before = huge_mib();
	need(!madvise(p, HUGE, MADV_HUGEPAGE));
	wait_khugepaged();
	return huge_mib() - before;
}

static void in_parts(char *p)
{
	struct ibv_mr *mrs[HUGE / (2 * MIB)];
	double before = huge_mib();

	bench_touch(p, HUGE);
	figure("touched", "MiB", huge_mib() - before);
	for (size_t i = 0; i < HUGE / (2 * MIB); i++)
		mrs[i] = registered(p + i * 2 * MIB + MIB, 64 * KIB);
	figure("parts registered", "MiB", huge_mib() - before);
	for (size_t i = 0; i < HUGE / (2 * MIB); i++)
		need(!ibv_dereg_mr(mrs[i]));
	figure("parts deregistered", "MiB", huge_mib() - before);
	wait_khugepaged();
	figure("khugepaged", "MiB", huge_mib() - before);
}

static void huge(bool is_heap, const char *which)
{
	char *p = huge_block(is_heap);

	if (!strcmp(which, "parts"))
		in_parts(p);
	else if (!strcmp(which, "first"))
		figure(which, "MiB", at_first_touch(p, is_heap));
	else
		figure(which, "MiB",
		       collapsed(p, strcmp(which, "half") ? PAGE : 2 * PAGE,
				 !strcmp(which, "registered")));
}

int main(int argc, char **argv)
{
	const char *what = argc > 3 ? argv[1] : "", *last = argc > 3 ? argv[argc - 1] : "";
	size_t n_bytes = argc > 3 ? (size_t)atol(argv[2]) * KIB : 0;

	begin();
	if (!strcmp(what, "unmap") && argc == 5)
		time_unmap(n_bytes, !strcmp(argv[3], "registered"), (size_t)atol(last));
	else if (!strcmp(what, "pairs"))
		time_pairs(n_bytes, (size_t)atol(last));
	else if (!strcmp(what, "messages") && argc == 5)
		time_messages(n_bytes, (size_t)atol(argv[3]), !strcmp(last, "write"));
	else if (!strcmp(what, "huge"))
		huge(!strcmp(argv[2], "heap"), last);
	else
		need(!"a known way");
	return 0;
}
