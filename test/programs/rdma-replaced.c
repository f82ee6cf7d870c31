/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Replaces pages of a malloc'ed block behind malloc, in all ways of stale-ways.h that are
 * possible there. A registration made afterwards must use the new pages. No two blocks share 2
 * MiB. Passes with the library and without. Prints TAP.
 *
 *     rdma-replaced [ROUNDS]
 *     rdma-replaced forked    beside a child that keeps a copy of each descriptor
 */
#include <config.h> /* for mremap() */

#include "test/programs/rdma.h"
#include "test/programs/stale-ways.h"
#include "test/tap.h"

#include <signal.h>

#define BLOCK (2 * MIB)
#define PIECE (64 * KIB) /* what is replaced, and moved */

static struct rdma rdma;
static char *landing;
static struct ibv_mr *landing_mr;

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
static bool follows(const struct way *way)
{
	char *block, *p;
	struct place place = {.n_bytes = PIECE};
	struct ibv_mr *mr;
	bool right;

	need((block = aligned_alloc(BLOCK, BLOCK)));
	place.buffer = p = block + 256 * KIB;
	need((mr = ibv_reg_mr(rdma.pd, p, PIECE, RDMA_ACCESS)));
	right = arrives(p, mr);
	need(!ibv_dereg_mr(mr));
	need(!replace_pages(way, &place));
	need((mr = ibv_reg_mr(rdma.pd, p, PIECE, RDMA_ACCESS)));
	right &= arrives(p, mr);
	need(!ibv_dereg_mr(mr));
	return right;
}

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
		need(!madvise(block + i * PIECE, PIECE, MADV_DONTNEED));
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
	for (size_t i = 0; i < N_WAYS; i++) {
		unsigned wrong = 0;

		if (ways[i].of != ANY)
			continue;
		for (unsigned round = 0; round < rounds; round++)
			wrong += !follows(&ways[i]);
		ok(!wrong, "%s: wrong %u times of %u", ways[i].name, wrong, rounds);
	}
	return done_testing();
}
