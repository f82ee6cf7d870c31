/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process with registered memory has children, and all of them continue to use their heaps. A
 * child ends through exit(), with its handlers. Prints TAP.
 *
 *     rdma-fork [init] [early] [apart]
 *
 * init: calls ibv_fork_init() first. early: has a child before anything else. apart: the child
 * does not touch registered memory, which it may have lost.
 */
#include "test/programs/rdma.h"
#include "test/tap.h"

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH	  303104 /* whole pages: a child can lose no less */
#define INHERITED 60

extern char **environ;

static struct rdma rdma;
static char *source, *landing;
static struct ibv_mr *source_mr, *landing_mr;
static char *inherited[INHERITED]; /* and never registered */
static bool apart;

static size_t inherited_size(size_t i)
{
	return 1 + (size_t)5 * i * i * i; /* to a mebibyte */
}

static void fill_inherited(uint64_t seed)
{
	for (size_t i = 0; i < INHERITED; i++)
		rdma_fill(inherited[i], inherited_size(i), seed + i);
}

static bool inherited_is_right(uint64_t seed)
{
	size_t wrong = 0;

	for (size_t i = 0; i < INHERITED; i++)
		wrong += rdma_wrong(inherited[i], inherited_size(i), seed + i);
	return !wrong;
}

static bool sends(uint64_t seed)
{
	rdma_fill(source, LENGTH, seed);
	return !rdma_write(&rdma, source, source_mr->lkey, landing, landing_mr->rkey, LENGTH) &&
	       !rdma_wrong(landing, LENGTH, seed);
}

static bool ended_well(pid_t pid)
{
	int status = -1;

	need(waitpid(pid, &status, 0) == pid);
	if (status)
		printf("# child: status 0x%x\n", (unsigned)status);
	return !status;
}

/* Blocks of its own, of all sizes, and of the parent's. */
static bool heap_works(uint64_t seed)
{
	bool right = true;

	for (size_t n = 1; n < 8 * MIB; n *= 3) {
		char *block = malloc(n);

		rdma_fill(block, n, seed);
		right &= !rdma_wrong(block, n, seed);
		block = realloc(block, 2 * n);
		right &= !rdma_wrong(block, n, seed);
		free(block);
	}
	return right;
}

static bool registered_is_writable(uint64_t seed)
{
	rdma_fill(source, LENGTH, seed);
	rdma_fill(landing, LENGTH, seed);
	return !rdma_wrong(source, LENGTH, seed) && !rdma_wrong(landing, LENGTH, seed);
}

/* Until the parent closes its end; what the parent has in memory then is its own. */
static void child(int parent)
{
	struct pollfd closed = {.fd = parent};
	bool right = inherited_is_right(1) && (apart || !rdma_wrong(source, LENGTH, 1));

	for (uint64_t seed = 1000; !poll(&closed, 1, 0); seed++) {
		right &= apart || registered_is_writable(seed);
		fill_inherited(seed);
		right &= heap_works(seed) && inherited_is_right(seed);
	}
	for (size_t i = 0; i < INHERITED; i++)
		free(inherited[i]);
	if (!apart) {
		free(source);
		free(landing);
	}
	exit(right ? 0 : 1);
}

static void fork_and_write(void)
{
	bool right;
	int ends[2];
	pid_t pid;

	right = sends(1);
	fill_inherited(1);
	need(!pipe(ends));
	fflush(stdout);
	pid = fork();
	need(pid >= 0);
	if (!pid) {
		close(ends[1]);
		child(ends[0]);
	}
	close(ends[0]);
	for (uint64_t seed = 2; seed < 20; seed++) {
		fill_inherited(seed);
		right &= sends(seed) && heap_works(seed) && inherited_is_right(seed);
	}
	ok(right, "the parent's data is right while both write");
	close(ends[1]);
	ok(ended_well(pid), "the child's heap works");
	ok(sends(50), "the parent's data is right afterwards");
}

/* The child borrows the parent's memory until it has become another program. */
static pid_t vforked(char *const arguments[])
{
	pid_t pid = vfork();

	if (!pid) {
		execvp(arguments[0], arguments);
		_exit(127);
	}
	need(pid > 0);
	return pid;
}

static void other_children(void)
{
	char *const arguments[] = {(char *)"true", NULL};
	char line[16] = "";
	FILE *pipe;
	pid_t pid;

	need(!posix_spawnp(&pid, "true", NULL, NULL, arguments, environ));
	ok(sends(60) && ended_well(pid) && sends(61), "posix_spawn");
	pid = vforked(arguments);
	ok(sends(65) && ended_well(pid) && sends(66), "vfork and exec");
	need((pipe = popen("echo hello", "r")));
	need(fgets(line, sizeof line, pipe));
	ok(sends(62) && !strcmp(line, "hello\n") && !pclose(pipe) && sends(63), "popen");
	ok(!system("true") && sends(64), "system");
}

static void early_child(void)
{
	pid_t pid = fork();

	if (!pid)
		exit(heap_works(1) ? 0 : 1);
	ok(ended_well(pid), "a child before there is anything to register");
}

static void get_ready(void)
{
	rdma_connect(&rdma, ibv_alloc_pd(rdma_open()));
	need((source = aligned_alloc(4 * KIB, LENGTH)));
	need((landing = aligned_alloc(4 * KIB, LENGTH)));
	need((source_mr = ibv_reg_mr(rdma.pd, source, LENGTH, RDMA_ACCESS)));
	need((landing_mr = ibv_reg_mr(rdma.pd, landing, LENGTH, RDMA_ACCESS)));
	for (size_t i = 0; i < INHERITED; i++)
		need((inherited[i] = malloc(inherited_size(i))));
}

static bool given(const char *word, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc && strcmp(argv[i], word); i++)
		;
	return i < argc;
}

int main(int argc, char **argv)
{
	apart = given("apart", argc, argv);
	if (given("early", argc, argv))
		early_child();
	if (given("init", argc, argv))
		ok(!ibv_fork_init(), "ibv_fork_init");
	get_ready();
	fork_and_write();
	other_children();
	ok(!ibv_dereg_mr(source_mr) && !ibv_dereg_mr(landing_mr), "all can be given up");
	return done_testing();
}
