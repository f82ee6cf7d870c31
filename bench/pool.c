/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pools compared with what they replace. Prints one number for each of:
 *
 *     pool memset MIB PAGES           memory of mmap(2), memset by one thread, then registered;
 * ms pool create MIB PAGES THREADS   a pool of so much, touched by so many threads; ms pool
 * warm MIB PAGES             touches memory, so that the machine has it pool alloc slices of 16
 * KiB to 1 MiB, a thousand in use: ns for taking pool free                       one, and for
 * giving one back pool malloc                     the same with malloc pool malloc-free
 *
 * PAGES is huge or small. Registered is with the adapter that there is, and, since a stand-in
 * for one pins nothing, as fixed buffers of io_uring: the kernel pins these as it does for
 * verbs.
 */
#include "bench/bench.h"

#include <liburing.h>
#include <sys/mman.h>

#define MOST_BUFFERS 64u
#define HELD	     1000
#define BATCHES	     2000

static struct io_uring ring;
static unsigned n_buffers;

static void open_ring(void)
{
	need(!io_uring_queue_init(8, &ring, 0));
	need(!io_uring_register_buffers_sparse(&ring, MOST_BUFFERS));
}

/* The kernel takes 1 GiB in a buffer at most. */
static int pin(void *start, size_t length, int is_added, void *arg)
{
	(void)arg;
	for (size_t at = 0; at < length && is_added; at += GIB) {
		struct iovec part = {(char *)start + at, length - at < GIB ? length - at : GIB};

		if (n_buffers == MOST_BUFFERS)
			return ENOSPC;
		need(io_uring_register_buffers_update_tag(&ring, n_buffers++, &part, NULL, 1) ==
		     1);
	}
	return 0;
}

static struct ibv_pd *new_pd(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());

	need(pd);
	return pd;
}

static char *map(size_t n_bytes, bool is_huge)
{
	char *p = mmap(NULL, n_bytes + 2 * MIB, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	need(p != MAP_FAILED);
	p += -(uintptr_t)p % (2 * MIB);
	need(!madvise(p, n_bytes, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE));
	return p;
}

static double with_memset(size_t n_bytes, bool is_huge)
{
	struct ibv_pd *pd = new_pd();
	double began = rdma_now();
	char *p = map(n_bytes, is_huge);

	memset(p, 0, n_bytes);
	need(ibv_reg_mr(pd, p, n_bytes, RDMA_ACCESS));
	need(!pin(p, n_bytes, 1, NULL));
	return (rdma_now() - began) * 1e3;
}

static struct pinalloc_pool *create(size_t n_bytes, bool is_huge, unsigned n_threads)
{
	struct pinalloc_pool_options options = {
		.bytes = n_bytes,
		.page_size = is_huge ? PINALLOC_PAGES_HUGE : 0,
		.threads = n_threads,
		.on_segment = n_threads ? pin : NULL,
	};
	struct pinalloc_pool *made = pinalloc_pool_create(&options, sizeof options);

	need(made);
	return made;
}

static double with_pool(size_t n_bytes, bool is_huge, unsigned n_threads)
{
	double began;

	need(pinalloc_pool_create && !pinalloc_enable(new_pd(), RDMA_ACCESS));
	began = rdma_now();
	create(n_bytes, is_huge, n_threads);
	need(bench_stats().pinned >= n_bytes);
	return (rdma_now() - began) * 1e3;
}

static uint64_t state = 1;

static size_t any_size(void)
{
	return 16 * KIB + rdma_random(&state) % (1008 * KIB) / 4096 * 4096;
}

static struct pinalloc_pool *pool; /* NULL: malloc */

static void *take(size_t n_bytes)
{
	return pool ? pinalloc_pool_alloc(pool, n_bytes, 4096) : malloc(n_bytes);
}

static void give(void *p)
{
	if (pool)
		need(!pinalloc_pool_free(pool, p));
	else
		free(p);
}

/* The median over batches of a hundred calls; memory is given back in another order. */
static double cost(bool of_taking)
{
	static void *held[HELD];
	static size_t sizes[100], which[100];
	double ns[BATCHES];

	for (size_t i = 0; i < HELD; i++)
		need((held[i] = take(any_size())));
	for (size_t k = 0; k < BATCHES; k++) {
		double began, between;

		for (size_t i = 0; i < 100; i++) {
			sizes[i] = any_size();
			which[i] = (i * 10 + rdma_random(&state) % 10) % HELD;
		}
		began = bench_processor_ns();
		for (size_t i = 0; i < 100; i++)
			give(held[which[i]]);
		between = bench_processor_ns();
		for (size_t i = 0; i < 100; i++)
			held[which[i]] = take(sizes[i]);
		ns[k] = (of_taking ? bench_processor_ns() - between : between - began) / 100;
		for (size_t i = 0; i < 100; i++)
			need(held[which[i]]);
	}
	return bench_quantile(ns, BATCHES, 0.5);
}

static void print_cost(const char *what)
{
	bool of_malloc = !strncmp(what, "malloc", 6);

	need(of_malloc || !strcmp(what, "alloc") || !strcmp(what, "free"));
	if (!of_malloc)
		pool = create(640 * MIB, false, 0);
	printf("%.1f\n", cost(strcmp(what, "free") && strcmp(what, "malloc-free")));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	size_t n_bytes = argc > 2 ? (size_t)atol(argv[2]) * MIB : 0;
	bool is_huge = argc > 3 && !strcmp(argv[3], "huge");

	if (!n_bytes) {
		print_cost(what);
	} else if (!strcmp(what, "warm")) {
		bench_touch(map(n_bytes, is_huge), n_bytes);
	} else {
		open_ring();
		printf("%.1f\n", !strcmp(what, "memset") ? with_memset(n_bytes, is_huge)
							 : with_pool(n_bytes, is_huge,
								     (unsigned)atoi(argv[4])));
	}
	return 0;
}
