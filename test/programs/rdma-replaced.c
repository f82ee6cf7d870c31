/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Replaces pages of a malloc'ed block behind malloc, in all ways of stale-ways.h that are
 * possible there. A registration made afterwards must use the new pages. No two blocks share 2
 * MiB. Passes with the library and without. Prints TAP.
 *
 *     rdma-replaced [ROUNDS]
 *     rdma-replaced cached LISTENER GROUPS
 *                             instead, all ways, in memory of every kind that messages use by
 *                             cache.h, but for those of these groups
 *     rdma-replaced forked    beside a child that keeps a copy of each descriptor
 *     rdma-replaced limited   while the process may have no further descriptors, and then again
 */
#include <config.h> /* for mremap() */

#include "test/programs/cache.h"
#include "test/programs/stale-ways.h"

#include <signal.h>
#include <sys/resource.h>

#define BLOCK (2 * MIB)
#define PIECE (64 * KIB) /* what is replaced, and moved */

static struct rdma rdma;
static char *landing;
static struct ibv_mr *landing_mr;

static bool is_right(char *p)
{
	static uint64_t seed;
	struct ibv_mr *mr = reg(rdma.pd, p, PIECE);
	bool right;

	rdma_fill(p, PIECE, ++seed);
	right = !rdma_write(&rdma, p, mr->lkey, landing, landing_mr->rkey, PIECE) &&
		!rdma_wrong(landing, PIECE, seed);
	need(!ibv_dereg_mr(mr));
	return right;
}

/*
 * Registered before, deregistered as by a cache that was notified, replaced, and registered
 * again.
 */
static bool follows(const struct way *way)
{
	char *block, *p;
	struct place place = {.n_bytes = PIECE};
	bool right;

	need((block = aligned_alloc(BLOCK, BLOCK)));
	place.buffer = p = block + 256 * KIB;
	right = is_right(p);
	need(!replace_pages(way, &place));
	return right & is_right(p);
}

static void try_all(const char *when, unsigned rounds)
{
	for (size_t i = 0; i < N_WAYS; i++) {
		unsigned wrong = 0;

		for (unsigned round = 0; ways[i].of == ANY && round < rounds; round++)
			wrong += !follows(&ways[i]);
		if (ways[i].of == ANY)
			ok(!wrong, "%s%s: wrong %u times of %u", when, ways[i].name, wrong,
			   rounds);
	}
}

/* --- with a cache --------------------------------------------------------------------------
 */

/* Into the memory, or from it, by the cache. */
static bool passes(char *p, size_t n_bytes, bool is_sent)
{
	static uint64_t seed = 1u << 20;
	struct cache_entry *entry;
	bool right;

	rdma_fill(is_sent ? p : landing, n_bytes, ++seed);
	rdma_fill(is_sent ? landing : p, n_bytes, ~seed);
	entry = cache_hold(p, p + n_bytes, p, p + n_bytes);
	right = !(is_sent ? rdma_write(&rdma, p, entry->mr->lkey, landing, landing_mr->rkey,
				       n_bytes)
			  : rdma_write(&rdma, landing, landing_mr->lkey, p, entry->mr->rkey,
				       n_bytes));
	cache_release(entry);
	return right && !rdma_wrong(is_sent ? landing : p, n_bytes, seed);
}

/* A message, and three more, each after pages were replaced, as far as that is possible. */
static void cached(const struct way *way, bool is_sent)
{
	struct place place = {.n_bytes = BYTES, .fd = -1};
	bool right = true;
	int n = 0;

	if (way->make(&place))
		return;
	do
		right &= passes(place.buffer, BYTES, is_sent);
	while (++n < 4 && !replace_pages(way, &place));
	/* Of ways on stacks a thread is left, whose semaphores the next case uses. */
	if (host.thread)
		end_host();
	ok(right, "%s: %d times %s", way->name, n, is_sent ? "sent" : "received");
}

static int try_cached(const char *listener, const char *left_out)
{
	cache_open(rdma.pd, listener);
	for (size_t i = 0; i < N_WAYS; i++)
		for (int is_sent = 0; is_sent < 2; is_sent++)
			if (!strstr(left_out, ways[i].group))
				cached(&ways[i], is_sent);
	printf("# hits %u\n", cache.hits);
	return done_testing();
}

/* --- behind malloc -------------------------------------------------------------------------
 */

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

/* Then many requests that nothing is registered for yet, and what was replaced before. */
static void limited(void)
{
	char *block = aligned_alloc(BLOCK, BLOCK), *others = aligned_alloc(BLOCK, 16 * BLOCK);
	struct rlimit most;

	need(block && others && !getrlimit(RLIMIT_NOFILE, &most));
	need(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, most.rlim_max}));
	need(is_right(block) && !madvise(block, BLOCK, MADV_DONTNEED));
	try_all("limited, ", 1);
	need(!setrlimit(RLIMIT_NOFILE, &most));
	for (size_t i = 0; i < 16 * BLOCK / PIECE; i++)
		need(is_right(others + i * PIECE));
	ok(is_right(block), "then what was replaced before is right");
	try_all("then, ", 1);
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 1;

	rdma_connect(&rdma, ibv_alloc_pd(rdma_open()));
	landing = rdma_map(BYTES);
	need((landing_mr = ibv_reg_mr(rdma.pd, landing, BYTES, RDMA_ACCESS)));
	if (argc > 3)
		return try_cached(argv[2], argv[3]);
	if (argc > 1 && !strcmp(argv[1], "forked"))
		forked();
	else if (argc > 1 && !strcmp(argv[1], "limited"))
		limited();
	else
		try_all("", rounds);
	return done_testing();
}
