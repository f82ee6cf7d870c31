/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap that grows to one size after the other, of blocks that are never touched and all
 * registered: what each growth step takes, and at each size what the heap is made of, what
 * a look-up of keys takes, and a report, and the statistics. Every block must have keys
 * for all of it. Steps and reports are timed by what they take of the processor. Sizes
 * are in GiB and ascend.
 *   usage: scale-growth ROUNDS REPORT GIB…     prints "GIB NAME FIGURE" lines
 */
#include <config.h>

#include "bench/bench.h"
#include "bench/lookup.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE	   (2 * MIB) /* a granule */
#define MOST_ASK   4096
#define N_RANGES   ((size_t)1 << 14)
#define MOST_TIMES ((size_t)1 << 20)
#define REPORTS	   21
#define TAIL	   (64 * GIB) /* no other mapping without rights is that large */

static struct ibv_pd *pd;
static char **blocks; /* not in the heap that is measured */
static size_t n_blocks;
static double *times; /* of the growth steps since the last size, ns */
static size_t n_times;
static const char *ranges[N_RANGES];
static size_t lengths[N_RANGES];

static void *outside(size_t n_bytes)
{
	void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	need(p != MAP_FAILED);
	return p;
}

static void say(size_t gib, const char *name, double value)
{
	printf("%zu %s %.3f\n", gib, name, value);
}

/* A growth step by this thread: the heap has grown, and the block is above all others. Each
 * block is a granule, which the base line of look-ups needs. */
static void add_block(void)
{
	uint64_t mapped = bench_stats().mapped;
	double began = bench_processor_ns();
	char *p = aligned_alloc(PIECE, PIECE);
	double ns = bench_processor_ns() - began;

	need(p && n_blocks < MOST_TIMES && n_times < MOST_TIMES);
	if (bench_stats().mapped != mapped && (!n_blocks || p > blocks[n_blocks - 1]))
		times[n_times++] = ns;
	blocks[n_blocks++] = p;
}

static void grow_to(size_t gib)
{
	n_times = 0;
	while (bench_stats().mapped < gib * GIB)
		add_block();
	need(n_times);
	say(gib, "steps", (double)n_times);
	say(gib, "p50", bench_quantile(times, n_times, 0.5));
	say(gib, "p99", bench_quantile(times, n_times, 0.99));
	say(gib, "max", bench_quantile(times, n_times, 1));
}

/*
 * Mappings from the one the first block is in, downwards while they adjoin and upwards to
 * the rest of the reserve, which has no rights: that one counts, too.
 */
static size_t count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	uintptr_t from, to, before = 0;
	uintptr_t first = (uintptr_t)blocks[0];
	char line[512], rights[8];
	size_t n = 0;

	need(maps);
	while (fgets(line, sizeof line, maps)) {
		need(sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3);
		if (to <= first)
			n = from == before && rights[0] == 'r' ? n + 1 : rights[0] == 'r';
		else
			n++;
		before = to;
		if (from > first && rights[0] == '-' && to - from >= TAIL)
			break;
	}
	need(!feof(maps));
	fclose(maps);
	return n;
}

/* All registered, by asking: every block has keys for all of it. */
static void check_keys(void)
{
	struct pinalloc_key key;

	for (size_t i = 0; i < n_blocks; i++)
		need(!pinalloc_lookup(pd, blocks[i], PIECE, RDMA_ACCESS, &key));
	need(!bench_stats().refused && !bench_stats().evicted);
}

static void prepare_lookups(void)
{
	uintptr_t lowest = UINTPTR_MAX, highest = 0;
	struct pinalloc_key key;
	uint64_t random = 1;

	for (size_t i = 0; i < n_blocks; i++) {
		uintptr_t p = (uintptr_t)blocks[i];

		lowest = p < lowest ? p : lowest;
		highest = p > highest ? p : highest;
	}
	/* A block can begin within a granule of 2 MiB, and lies in two of them then. */
	floor_init(lowest, highest + PIECE, n_blocks);
	for (size_t i = 0; i < n_blocks; i++) {
		need(!pinalloc_lookup(pd, blocks[i], 1, RDMA_ACCESS, &key));
		floor_add((uintptr_t)blocks[i], key);
		floor_same((uintptr_t)blocks[i] + PIECE - 1);
	}
	for (size_t i = 0; i < N_RANGES; i++) {
		lengths[i] = 1 + rdma_random(&random) % MOST_ASK;
		ranges[i] = blocks[rdma_random(&random) % n_blocks] +
			    rdma_random(&random) % (PIECE - lengths[i]);
	}
}

/* noipa: all are called alike, through the pointer. */
__attribute__((noipa)) static uint64_t work(lookup_fn *look_up, size_t n)
{
	struct pinalloc_key key = {0};
	uint64_t sum = 0;

	for (size_t at = 0; n--; at = (at + 1) % N_RANGES) {
		look_up(pd, ranges[at], lengths[at], RDMA_ACCESS, &key);
		sum += key.lkey;
	}
	return sum;
}

static uint64_t work_floor(unsigned thread, size_t n)
{
	return work(floor_lookup, n + thread);
}

static uint64_t work_pinalloc(unsigned thread, size_t n)
{
	return work(pinalloc_lookup, n + thread);
}

static uint64_t work_stats(unsigned thread, size_t n)
{
	uint64_t sum = thread;

	while (n--)
		sum += bench_stats().mapped;
	return sum;
}

static struct contestant contestants[] = {
	{"loads", work_floor, 0}, {"lookup", work_pinalloc, 0}, {"stats", work_stats, 0}};
#define N_CONTESTANTS (sizeof contestants / sizeof *contestants)

/* The rounds keep to one processor; what comes after them need not. */
static void time_lookups(size_t gib, unsigned rounds)
{
	cpu_set_t before;

	need(!sched_getaffinity(0, sizeof before, &before));
	rounds_time(contestants, N_CONTESTANTS, 1, rounds);
	need(!sched_setaffinity(0, sizeof before, &before));
	for (size_t i = 0; i < N_CONTESTANTS; i++)
		say(gib, contestants[i].name, contestants[i].ns);
}

static void time_reports(size_t gib, const char *path)
{
	double all[REPORTS];
	struct stat file;

	need(!pinalloc_report(path)); /* the first one names stacks */
	for (size_t i = 0; i < REPORTS; i++) {
		double began = bench_processor_ns();

		need(!pinalloc_report(path));
		all[i] = (bench_processor_ns() - began) / 1e6;
	}
	need(!stat(path, &file));
	say(gib, "report", bench_quantile(all, REPORTS, 0.5));
	say(gib, "report-bytes", (double)file.st_size);
}

static void measure(size_t gib, unsigned rounds, const char *report)
{
	check_keys();
	say(gib, "regions", (double)bench_stats().growth_steps);
	say(gib, "mappings", (double)count_mappings());
	say(gib, "resident", bench_kib("/proc/self/status", "VmRSS:") / 1024);
	prepare_lookups();
	check_keys();
	need(work_floor(0, N_RANGES) == work_pinalloc(0, N_RANGES));
	time_lookups(gib, rounds);
	time_reports(gib, report);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	unsigned rounds;

	need(argc > 3 && (rounds = (unsigned)strtoul(argv[1], NULL, 10)) && pinalloc_lookup);
	blocks = outside(MOST_TIMES * sizeof *blocks);
	times = outside(MOST_TIMES * sizeof *times);
	need((pd = ibv_alloc_pd(rdma_open())));
	need(!pinalloc_enable(pd, RDMA_ACCESS));
	for (int i = 3; i < argc; i++) {
		size_t gib = strtoul(argv[i], NULL, 10);

		grow_to(gib);
		measure(gib, rounds, argv[2]);
	}
	return 0;
}
