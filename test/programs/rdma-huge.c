/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-huge MIB: allocates that much in blocks of several sizes, the first one registered
 * before the others are allocated, and has the adapter copy each. Prints TAP, and how many
 * hugetlb pages are left in the pool.
 *
 * rdma-huge replaced MIB: replaces the pages of a registered block behind malloc; the
 * adapter must read the new ones when it is registered again.
 *
 * rdma-huge fork registered|plain: forks while the pool is empty, as root, who lowers it; the
 * child reads a page that the parent has written in between. Prints the result.
 */
#include "test/programs/rdma.h"
#include "test/tap.h"

#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 4096

static struct rdma rdma;
static char *landing;
static struct ibv_mr *landing_mr;
static char *blocks[BLOCKS];
static size_t sizes[BLOCKS];

static bool arrives(char *p, size_t n_bytes)
{
	struct ibv_mr *mr = ibv_reg_mr(rdma.pd, p, n_bytes, RDMA_ACCESS);
	bool right = mr && rdma_sends(&rdma, p, mr->lkey, landing, landing_mr->rkey, n_bytes);

	return right && !ibv_dereg_mr(mr);
}

static void say_pool(const char *when)
{
	unsigned pages = 0;
	FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");

	need(file && fscanf(file, "%u", &pages) == 1);
	fclose(file);
	printf("# free %s %u\n", when, pages);
}

static void hold(size_t wanted)
{
	size_t held = 0, n = 0, right = 0;

	say_pool("before");
	for (; held < wanted && n < BLOCKS; held += sizes[n++]) {
		sizes[n] = (1 + n * 5 % 8) * MIB;
		need((blocks[n] = malloc(sizes[n])));
	}
	for (size_t i = 0; i < n; i++)
		right += arrives(blocks[i], sizes[i]);
	ok(right == n, "the adapter copies each of %zu blocks", n);
	say_pool("after");
}

static void replace(size_t n_bytes)
{
	char *p = malloc(n_bytes);
	char *inside = (char *)(((uintptr_t)p + 4 * MIB) & ~(uintptr_t)(2 * MIB - 1));

	need(p);
	ok(arrives(inside, 4 * MIB), "the adapter reads the block");
	need(mmap(inside, 4 * MIB, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == inside);
	ok(arrives(inside, 4 * MIB), "and the pages that the program has put in its place");
}

/* No stdio, and no malloc, in the child: its pages are what is tried. */
static void fork_when_empty(bool registered)
{
	const size_t n_bytes = 16 * MIB;
	volatile char *p = malloc(n_bytes);
	int ready[2], status;
	FILE *pool;
	pid_t child;
	char c = 0;

	need(p && !pipe(ready));
	memset((char *)p, 1, n_bytes);
	if (registered)
		need(ibv_reg_mr(rdma.pd, (char *)p, n_bytes, RDMA_ACCESS));
	need((pool = fopen("/proc/sys/vm/nr_hugepages", "w")));
	need(fputs("0\n", pool) >= 0 && !fclose(pool));
	child = fork();
	if (!child) {
		need(read(ready[0], &c, 1) == 1);
		_exit(p[n_bytes / 2] != 1);
	}
	if (child < 0) {
		printf("fork fails: %s\n", strerror(errno));
		return;
	}
	p[n_bytes / 2] = 2;
	need(write(ready[1], &c, 1) == 1 && waitpid(child, &status, 0) == child);
	printf("the child ends by signal %d, status %d\n", WTERMSIG(status),
	       WEXITSTATUS(status));
}

int main(int argc, char **argv)
{
	need(argc > 1);
	if (argc > 2 && !strcmp(argv[1], "fork")) {
		need((rdma.pd = ibv_alloc_pd(rdma_open())));
		fork_when_empty(!strcmp(argv[2], "registered"));
		return 0;
	}
	rdma_connect(&rdma, ibv_alloc_pd(rdma_open()));
	need((landing = malloc(8 * MIB)));
	need((landing_mr = ibv_reg_mr(rdma.pd, landing, 8 * MIB, RDMA_ACCESS)));
	if (argc > 2)
		replace(strtoul(argv[2], NULL, 0) * MIB);
	else
		hold(strtoul(argv[1], NULL, 0) * MIB);
	return done_testing();
}
