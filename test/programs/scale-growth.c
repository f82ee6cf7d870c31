/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap of GIB, of blocks that are never touched and all registered: what it is made of, and
 * how long its report is. Every block must have keys for all of it. Prints "NAME FIGURE" lines.
 *
 *     scale-growth REPORT GIB
 */
#include <config.h>

#include "bench/bench.h"
#include "preload/pinalloc.h"

#include <sys/stat.h>

#define PIECE (2 * MIB) /* a granule */
#define MOST  ((size_t)1 << 20)

static struct ibv_pd *pd;
static char **blocks; /* not in the heap that is measured */
static size_t n_blocks;

static void say(const char *name, size_t value)
{
	printf("%s %zu\n", name, value);
}

static size_t count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	size_t n = 0;

	need(maps);
	while (fgets(line, sizeof line, maps))
		n++;
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

int main(int argc, char **argv)
{
	struct stat report;
	size_t n_mappings;

	need(argc == 3 && pinalloc_lookup);
	blocks = rdma_map(MOST * sizeof *blocks);
	need((pd = ibv_alloc_pd(rdma_open())));
	need(!pinalloc_enable(pd, RDMA_ACCESS));
	n_mappings = count_mappings();
	while (bench_stats().mapped < strtoul(argv[2], NULL, 10) * GIB)
		need(n_blocks < MOST && (blocks[n_blocks++] = aligned_alloc(PIECE, PIECE)));
	check_keys();
	say("regions", bench_stats().growth_steps);
	say("mappings", count_mappings() - n_mappings);
	say("resident", (size_t)bench_kib("/proc/self/status", "VmRSS:") / 1024);
	need(!pinalloc_report(argv[1]) && !stat(argv[1], &report));
	say("report-bytes", (size_t)report.st_size);
	return 0;
}
