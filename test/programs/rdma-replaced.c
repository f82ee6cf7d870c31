/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Replaces pages of a malloc'ed block behind malloc, in every way Linux has, through libc and
 * by direct system calls. A registration made afterwards must use the new pages. No two blocks
 * share 2 MiB. Passes with the library and without. Prints TAP.
 *
 *     rdma-replaced [ROUNDS]
 *     rdma-replaced forked    beside a child that keeps a copy of each descriptor
 */
#include <config.h> /* for mremap() */

#include "test/programs/raw.h"
#include "test/programs/rdma.h"
#include "test/tap.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK (2 * MIB)
#define PIECE (64 * KIB) /* what is replaced, and moved */

#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)
#define WRITABLE  (PROT_READ | PROT_WRITE)

static struct rdma rdma;
static char *landing;
static struct ibv_mr *landing_mr;

static char *fresh(void)
{
	char *p = mmap(NULL, PIECE, WRITABLE, ANONYMOUS, -1, 0);

	need(p != MAP_FAILED);
	rdma_fill(p, PIECE, 0);
	return p;
}

static void discard(char *p)
{
	need(!madvise(p, PIECE, MADV_DONTNEED));
}

static void discard_raw(char *p)
{
	need(!raw_call(SYS_madvise, (long)p, PIECE, MADV_DONTNEED, 0, 0));
}

static void map_over(char *p)
{
	need(mmap(p, PIECE, WRITABLE, ANONYMOUS | MAP_FIXED, -1, 0) == p);
}

static void map_over_raw(char *p)
{
	need(raw_call(SYS_mmap, (long)p, PIECE, WRITABLE, ANONYMOUS | MAP_FIXED, -1) ==
	     (long)p);
}

static void move_over(char *p)
{
	need(mremap(fresh(), PIECE, PIECE, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
}

static void move_over_raw(char *p)
{
	need(raw_call(SYS_mremap, (long)fresh(), PIECE, PIECE, MREMAP_MAYMOVE | MREMAP_FIXED,
		      (long)p) == (long)p);
}

static void unmap(char *p)
{
	need(!munmap(p, PIECE));
	map_over(p);
}

static void unmap_raw(char *p)
{
	need(!raw_call(SYS_munmap, (long)p, PIECE, 0, 0, 0));
	map_over_raw(p);
}

static void move_away(char *p)
{
	need(mremap(p, PIECE, PIECE, MREMAP_MAYMOVE | MREMAP_FIXED, fresh()) != MAP_FAILED);
	map_over(p);
}

static bool arrives(char *p, const struct ibv_mr *mr)
{
	static uint64_t seed;

	rdma_fill(p, PIECE, ++seed);
	return !rdma_write(&rdma, p, mr->lkey, landing, landing_mr->rkey, PIECE) &&
	       !rdma_wrong(landing, PIECE, seed);
}

/*
 * Registered before, deregistered as by a cache that was notified, replaced, and registered
 * again.
 */
static bool follows(void (*replace)(char *))
{
	char *block, *p;
	struct ibv_mr *mr;
	bool right;

	need((block = aligned_alloc(BLOCK, BLOCK)));
	p = block + 256 * KIB;
	need((mr = ibv_reg_mr(rdma.pd, p, PIECE, RDMA_ACCESS)));
	right = arrives(p, mr);
	need(!ibv_dereg_mr(mr));
	replace(p);
	need((mr = ibv_reg_mr(rdma.pd, p, PIECE, RDMA_ACCESS)));
	right &= arrives(p, mr);
	need(!ibv_dereg_mr(mr));
	return right;
}

static const struct {
	const char *name;
	void (*replace)(char *);
} ways[] = {{"madvise", discard},	{"madvise, raw", discard_raw},
	    {"mmap over", map_over},	{"mmap over, raw", map_over_raw},
	    {"mremap over", move_over}, {"mremap over, raw", move_over_raw},
	    {"munmap", unmap},		{"munmap, raw", unmap_raw},
	    {"mremap away", move_away}};

/* Descriptors of this kind that the process has open. */
static int count_watches(void)
{
	char name[32], target[64];
	int found = 0;

	for (int fd = 3; fd < 1024; fd++) {
		snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
		ssize_t n = readlink(name, target, sizeof target - 1);

		found += n > 0 && !strncmp(target, "anon_inode:[userfaultfd]", (size_t)n);
	}
	return found;
}

/* Who reads what the kernel says, if a child has a copy of what it is said by? */
static void forked(void)
{
	char *block = aligned_alloc(BLOCK, BLOCK);
	pid_t child = fork();
	double began;

	need(child >= 0 && block);
	if (!child) {
		sleep(10);
		_exit(0);
	}
	ok(!count_watches(), "the program has no descriptor that it has not opened");
	began = rdma_now();
	for (int i = 0; i < 3; i++)
		discard(block + i * PIECE);
	ok(rdma_now() - began < 5, "no call waits for the child");
	kill(child, SIGKILL);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 1;

	rdma_connect(&rdma, ibv_alloc_pd(rdma_open()));
	need((landing = malloc(PIECE)));
	need((landing_mr = ibv_reg_mr(rdma.pd, landing, PIECE, RDMA_ACCESS)));
	if (argc > 1 && !strcmp(argv[1], "forked")) {
		forked();
		return done_testing();
	}
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		unsigned wrong = 0;

		for (unsigned round = 0; round < rounds; round++)
			wrong += !follows(ways[i].replace);
		ok(!wrong, "%s: wrong %u times of %u", ways[i].name, wrong, rounds);
	}
	return done_testing();
}
