/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys of random ranges in N blocks, each with its own memory region: the blocks are not
 * touched, not adjacent, and not registered ahead (PINALLOC_REGISTER=lazy). Compares
 * pinalloc_lookup() with two bare loads and with UCX's registration cache, for the same ranges
 * in the same order.
 *   usage: lookup-keys N ROUNDS           prints "THREADS WAY NAME NS" lines
 *          lookup-keys N count NAME CALLS only calls, for an instruction counter
 */
#include <config.h>

#include "bench/lookup.h"
#include "test/programs/rdma.h"

#include <unistd.h>

#define BLOCK	 (2 * MIB)
#define APART	 (4 * MIB) /* from one to the next */
#define MOST_ASK 4096
#define N_RANGES ((size_t)1 << 14)

struct range {
	const char *addr;
	size_t length;
};

static struct ibv_pd *pd;
static char **blocks;
static size_t n_blocks;
static struct range ranges[N_RANGES];

/* Whether a look-up depends on the result of the one before. */
static bool one_by_one;

/* Zero; but the compiler must not know. */
static volatile uint32_t zero;

/* noipa: all are called alike, through the pointer. */
__attribute__((noipa)) static uint64_t overlapping(lookup_fn *look_up, size_t at, size_t n)
{
	struct pinalloc_key key = {0};
	uint64_t sum = 0;

	while (n--) {
		look_up(pd, ranges[at].addr, ranges[at].length, RDMA_ACCESS, &key);
		sum += key.lkey;
		at = (at + 1) % N_RANGES;
	}
	return sum;
}

__attribute__((noipa)) static uint64_t waiting(lookup_fn *look_up, size_t at, size_t n)
{
	struct pinalloc_key key = {0};
	uint32_t none = zero;
	uint64_t sum = 0;

	while (n--) {
		look_up(pd, ranges[at].addr, ranges[at].length, RDMA_ACCESS, &key);
		sum += key.lkey;
		at = (at + 1 + (key.lkey & none)) % N_RANGES;
	}
	return sum;
}

static uint64_t work(lookup_fn *look_up, unsigned thread, size_t n)
{
	return (one_by_one ? waiting : overlapping)(look_up, thread * N_RANGES / 2, n);
}

static uint64_t work_empty(unsigned thread, size_t n)
{
	return work(empty_lookup, thread, n);
}

static uint64_t work_floor(unsigned thread, size_t n)
{
	return work(floor_lookup, thread, n);
}

static uint64_t work_pinalloc(unsigned thread, size_t n)
{
	return work(pinalloc_lookup, thread, n);
}

static uint64_t work_ucx(unsigned thread, size_t n)
{
	return work(ucx_lookup, thread, n);
}

static struct contestant contestants[] = {{"empty", work_empty, 0},
					  {"loads", work_floor, 0},
					  {"pinalloc", work_pinalloc, 0},
					  {"ucx", work_ucx, 0}};
#define N_CONTESTANTS (sizeof contestants / sizeof *contestants)

static struct pinalloc_stats stats(void)
{
	struct pinalloc_stats now;

	need(pinalloc_stats(&now, sizeof now) == (int)sizeof now);
	return now;
}

/* Every block's keys are its own: it has a memory region of its own. */
static struct pinalloc_key distinct_key(const char *block)
{
	static uint8_t seen[1 << 20];
	struct pinalloc_key key;

	need(!pinalloc_lookup(pd, block, BLOCK, RDMA_ACCESS, &key));
	need(key.lkey < sizeof seen && !seen[key.lkey]++);
	return key;
}

static void make_blocks(void)
{
	uintptr_t lowest = UINTPTR_MAX, highest = 0;
	struct pinalloc_key key;

	need((blocks = calloc(n_blocks, sizeof *blocks)));
	for (size_t i = 0; i < n_blocks; i++) {
		uintptr_t p;

		need((blocks[i] = aligned_alloc(BLOCK, APART)));
		p = (uintptr_t)blocks[i];
		lowest = p < lowest ? p : lowest;
		highest = p > highest ? p : highest;
	}
	floor_init(lowest, highest + BLOCK, n_blocks);
	for (size_t i = 0; i < n_blocks; i++)
		floor_add((uintptr_t)blocks[i], distinct_key(blocks[i]));
	for (size_t i = 0; i < n_blocks; i++)
		need(!ucx_lookup(pd, blocks[i], BLOCK, RDMA_ACCESS, &key));
}

static void choose_ranges(void)
{
	uint64_t random = 1;

	for (size_t i = 0; i < N_RANGES; i++) {
		const char *block = blocks[rdma_random(&random) % n_blocks];
		size_t n = 1 + rdma_random(&random) % MOST_ASK;

		ranges[i] = (struct range){block + rdma_random(&random) % (BLOCK - n), n};
	}
}

/* All must give the same keys, UCX by hits alone, or nothing is compared. */
static void check_sums(void)
{
	uint64_t sum = work_pinalloc(0, N_RANGES);

	need(sum && work_floor(0, N_RANGES) == sum && work_ucx(0, N_RANGES) == sum);
	need(ucx_registered() == n_blocks);
}

/* noipa: the instruction counter is told this name. */
__attribute__((noipa)) static int count(const char *name, size_t calls)
{
	for (size_t i = 0; i < N_CONTESTANTS; i++)
		if (!strcmp(contestants[i].name, name))
			return !contestants[i].work(0, calls) && i;
	return 2;
}

int main(int argc, char **argv)
{
	unsigned rounds;

	need(argc > 2 && (n_blocks = strtoul(argv[1], NULL, 10)) && pinalloc_lookup);
	/* All keys have the rights that UCX's registrations have. */
	need((pd = ibv_alloc_pd(rdma_open())) && !pinalloc_enable(pd, RDMA_ACCESS));
	ucx_init(pd, argc < 5);
	make_blocks();
	choose_ranges();
	need(stats().mr_created == n_blocks);
	check_sums();
	if (argc > 4)
		return count(argv[3], strtoul(argv[4], NULL, 10));
	need((rounds = (unsigned)strtoul(argv[2], NULL, 10)));
	rounds_print(contestants, N_CONTESTANTS, 1, "overlapping", rounds);
	if (rounds_processors() > 1)
		rounds_print(contestants, N_CONTESTANTS, 2, "overlapping", rounds);
	one_by_one = true;
	rounds_print(contestants, N_CONTESTANTS, 1, "waiting", rounds);
	return 0;
}
