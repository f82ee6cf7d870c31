/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ibv_reg_mr() and ibv_dereg_mr() of heap buffers under pinalloc, beside a hit in
 * UCX's registration cache, which is what an MPI library pays for the same buffer.
 *   usage: lookup-pairs BYTES ROUNDS           prints "THREADS WAY NAME NS" lines
 *          lookup-pairs BYTES count NAME PAIRS only calls, for an instruction counter
 */
#include <config.h>

#include "bench/lookup.h"
#include "test/programs/rdma.h"

static struct ibv_pd *pd;
static size_t length;
static char *buffers[MOST_THREADS]; /* by thread */

static uint64_t work_pinalloc(unsigned thread, size_t n)
{
	char *buffer = buffers[thread];
	uint64_t sum = 0;

	while (n--) {
		struct ibv_mr *mr = ibv_reg_mr(pd, buffer, length, RDMA_ACCESS);

		need(mr);
		sum += mr->lkey;
		need(!ibv_dereg_mr(mr));
	}
	return sum;
}

static uint64_t work_ucx(unsigned thread, size_t n)
{
	char *buffer = buffers[thread];
	struct pinalloc_key key = {0};
	uint64_t sum = 0;

	while (n--) {
		need(!ucx_lookup(pd, buffer, length, RDMA_ACCESS, &key));
		sum += key.lkey;
	}
	return sum;
}

static struct contestant contestants[] = {{"pinalloc", work_pinalloc, 0}, {"ucx", work_ucx, 0}};
#define N_CONTESTANTS (sizeof contestants / sizeof *contestants)

/* Not with pinalloc_lookup(), which would make the region HELD. */
static uint32_t lkey_of(const char *buffer)
{
	struct ibv_mr *mr;
	uint32_t lkey;

	need(buffer && (mr = ibv_reg_mr(pd, (void *)(uintptr_t)buffer, length, RDMA_ACCESS)));
	lkey = mr->lkey;
	need(!ibv_dereg_mr(mr));
	return lkey;
}

/* A buffer outside the region of another; what comes before is kept, to fill it. */
static char *apart_from(const char *other)
{
	uint32_t lkey = lkey_of(other);
	char *p;

	do
		p = malloc(length);
	while (lkey_of(p) == lkey);
	return p;
}

/* What is timed must be served, and give the region's keys, as UCX's does. */
static void check(void)
{
	const size_t n = 100;
	struct pinalloc_stats before, after;
	uint64_t sums[MOST_THREADS];

	for (unsigned i = 0; i < MOST_THREADS; i++) {
		sums[i] = n * (uint64_t)lkey_of(buffers[i]);
		need(work_ucx(i, n) == sums[i]);
	}
	need(ucx_registered() == (buffers[0] == buffers[1] ? 1 : 2));
	need(pinalloc_stats(&before, sizeof before) > 0);
	for (unsigned i = 0; i < MOST_THREADS; i++)
		need(work_pinalloc(i, n) == sums[i]);
	need(pinalloc_stats(&after, sizeof after) > 0);
	need(after.served - before.served == MOST_THREADS * n);
	need(after.passed_through == before.passed_through);
}

static void time_all(unsigned threads, const char *way, unsigned rounds)
{
	check();
	rounds_print(contestants, N_CONTESTANTS, threads, way, rounds);
}

/* noipa: the instruction counter is told this name. */
__attribute__((noipa)) static int count(const char *name, size_t pairs)
{
	for (size_t i = 0; i < N_CONTESTANTS; i++)
		if (!strcmp(contestants[i].name, name))
			return !contestants[i].work(0, pairs);
	return 2;
}

int main(int argc, char **argv)
{
	unsigned rounds;
	char *apart;

	need(argc > 2 && (length = strtoul(argv[1], NULL, 10)) && pinalloc_lookup);
	need((pd = ibv_alloc_pd(rdma_open())));
	ucx_init(pd, argc < 5);
	need((buffers[0] = malloc(length)));
	apart = apart_from(buffers[0]);
	buffers[1] = buffers[0];
	check();
	if (argc > 4)
		return count(argv[3], strtoul(argv[4], NULL, 10));
	need((rounds = (unsigned)strtoul(argv[2], NULL, 10)));
	time_all(1, "one", rounds);
	if (rounds_processors() < 2)
		return 0;
	time_all(2, "same", rounds);
	buffers[1] = apart;
	time_all(2, "apart", rounds);
	return 0;
}
