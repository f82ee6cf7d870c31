/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program may expect of ibv_reg_mr() and its relatives. Nothing in here
 * knows of the library: but where it says so, all of it holds without, too. Prints
 * TAP.
 *
 *     rdma-verbs CASE
 */
#include "test/programs/rdma.h"
#include "test/tap.h"

#include <pthread.h>
#include <unistd.h>

#define LENGTH 100000

static char *blocks[2]; /* of the heap */

static void make_blocks(void)
{
	for (int i = 0; i < 2; i++)
		need((blocks[i] = malloc(LENGTH)));
}

static bool describes(const struct ibv_mr *mr, struct ibv_pd *pd, void *addr, size_t length)
{
	return mr && mr->addr == addr && mr->length == length && mr->pd == pd &&
	       mr->context == pd->context;
}

/*
 * Whether the first MR's block gets to the second one's with a write, and back with
 * a read. `shift` is what the device adds to the addresses.
 */
static bool moves(struct rdma *rdma, const struct ibv_mr *const mrs[2], size_t shift)
{
	char *near = mrs[0]->addr, *far = mrs[1]->addr;
	size_t n = mrs[0]->length;
	static uint64_t seed;
	bool right;

	rdma_fill(near, n, ++seed);
	right = !rdma_write(rdma, near + shift, mrs[0]->lkey, far + shift, mrs[1]->rkey, n) &&
		!rdma_wrong(far, n, seed);
	memset(near, 0, n);
	return right &&
	       !rdma_read(rdma, near + shift, mrs[0]->lkey, far + shift, mrs[1]->rkey, n) &&
	       !rdma_wrong(near, n, seed);
}

static void answer(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	struct ibv_mr *mrs[2], *inner;
	struct rdma rdma;

	rdma_connect(&rdma, pd);
	make_blocks();
	/* The parentheses keep the macro out, which may choose another function. */
	mrs[0] = (ibv_reg_mr)(pd, blocks[0], LENGTH, RDMA_ACCESS);
	mrs[1] = ibv_reg_mr_iova2(pd, blocks[1], LENGTH, (uintptr_t)blocks[1], RDMA_ACCESS);
	inner = (ibv_reg_mr_iova)(pd, blocks[0] + 123, 1, (uintptr_t)blocks[0] + 123,
				  RDMA_ACCESS);
	ok(describes(mrs[0], pd, blocks[0], LENGTH), "ibv_reg_mr describes the request");
	ok(describes(mrs[1], pd, blocks[1], LENGTH), "ibv_reg_mr_iova2 does");
	ok(describes(inner, pd, blocks[0] + 123, 1), "ibv_reg_mr_iova does");
	ok(inner != mrs[0], "requests that overlap have an ibv_mr each");
	ok(moves(&rdma, (const struct ibv_mr *const *)mrs, 0), "the keys move the data");
	ok(!ibv_dereg_mr(inner), "one can be given up");
	ok(moves(&rdma, (const struct ibv_mr *const *)mrs, 0), "the others work on");
	ok(!ibv_dereg_mr(mrs[0]) && !ibv_dereg_mr(mrs[1]), "they can be given up");
	rdma_disconnect(&rdma);
	ok(!ibv_dealloc_pd(pd), "the protection domain is free");
}

/* Device addresses of their own. */
static void iova(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	const size_t shift = (size_t)1 << 40;
	const struct ibv_mr *const *mrs;
	struct ibv_mr *made[2];
	struct rdma rdma;

	rdma_connect(&rdma, pd);
	make_blocks();
	for (int i = 0; i < 2; i++)
		need((made[i] = ibv_reg_mr_iova2(pd, blocks[i], LENGTH,
						 (uintptr_t)blocks[i] + shift, RDMA_ACCESS)));
	mrs = (const struct ibv_mr *const *)made;
	ok(moves(&rdma, mrs, shift), "the device knows the memory under the other address");
	ok(!ibv_dereg_mr(made[0]) && !ibv_dereg_mr(made[1]), "they can be given up");
}

/* With the library, as its region cannot have the order of both. */
static void relaxed(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	struct ibv_mr *mrs[2], *strict;
	struct rdma rdma;

	rdma_connect(&rdma, pd);
	make_blocks();
	for (int i = 0; i < 2; i++)
		need((mrs[i] = ibv_reg_mr(pd, blocks[i], LENGTH,
					  RDMA_ACCESS | IBV_ACCESS_RELAXED_ORDERING)));
	need((strict = ibv_reg_mr(pd, blocks[0], LENGTH, RDMA_ACCESS)));
	ok(strict->lkey != mrs[0]->lkey, "with and without relaxed ordering the keys differ");
	ok(moves(&rdma, (const struct ibv_mr *const *)mrs, 0), "the keys move the data");
	ok(!ibv_dereg_mr(strict), "one can be given up");
	ok(moves(&rdma, (const struct ibv_mr *const *)mrs, 0), "the others work on");
	ok(!ibv_dereg_mr(mrs[0]) && !ibv_dereg_mr(mrs[1]), "they can be given up");
}

/* For PINALLOC_ACCESS=local: only the far side needs the peer's rights. */
static void rights(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	struct ibv_mr *mrs[2];
	struct rdma rdma;

	rdma_connect(&rdma, pd);
	make_blocks();
	need((mrs[0] = ibv_reg_mr(pd, blocks[0], LENGTH, IBV_ACCESS_LOCAL_WRITE)));
	need((mrs[1] = ibv_reg_mr(pd, blocks[1], LENGTH, RDMA_ACCESS)));
	ok(moves(&rdma, (const struct ibv_mr *const *)mrs, 0), "the keys move the data");
	ok(rdma_read(&rdma, blocks[1], mrs[1]->lkey, blocks[0], mrs[0]->rkey, LENGTH) ==
		   IBV_WC_REM_ACCESS_ERR,
	   "a right that nobody asked for is not there");
	ok(!ibv_dereg_mr(mrs[0]) && !ibv_dereg_mr(mrs[1]), "they can be given up");
}

/* With the library; without it the second ibv_dereg_mr() is memory corruption. */
static void twice(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	struct ibv_mr *mr, *kept, *own, *others[2];
	struct rdma rdma;

	rdma_connect(&rdma, pd);
	make_blocks();
	need((mr = ibv_reg_mr(pd, blocks[0], LENGTH, RDMA_ACCESS)));
	need((kept = ibv_reg_mr(pd, blocks[0], LENGTH, RDMA_ACCESS)));
	ok(!ibv_dereg_mr(mr), "the first time");
	ok(ibv_dereg_mr(mr) == EINVAL, "the second time");
	need((own = ibv_reg_mr(pd, blocks[0], LENGTH, RDMA_ACCESS | IBV_ACCESS_MW_BIND)));
	ok(ibv_dereg_mr(mr) == EINVAL, "also after a request that no region could serve");
	for (int i = 0; i < 2; i++)
		need((others[i] = ibv_reg_mr(pd, blocks[i], LENGTH, RDMA_ACCESS)));
	ok(others[0] != others[1], "nobody else was given up");
	ok(moves(&rdma, (const struct ibv_mr *const *)others, 0), "the keys move the data");
	ok(!ibv_dereg_mr(others[0]) && !ibv_dereg_mr(others[1]) && !ibv_dereg_mr(own),
	   "they can be given up");
	rdma_disconnect(&rdma);
	ok(ibv_dealloc_pd(pd) == EBUSY, "the other ibv_mr still counts");
	ok(!ibv_dereg_mr(kept) && !ibv_dealloc_pd(pd), "until it is given up");
}

static void many(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	static struct ibv_mr *mrs[10000];
	size_t n = sizeof mrs / sizeof *mrs, wrong = 0;
	char *block = malloc(n);
	const struct ibv_mr *ends[2];
	struct rdma rdma;

	rdma_connect(&rdma, pd);
	make_blocks();
	for (size_t i = 0; i < n; i++)
		need((mrs[i] = ibv_reg_mr(pd, block + i, n - i, RDMA_ACCESS)));
	for (size_t i = 0; i < n; i++)
		wrong += !describes(mrs[i], pd, block + i, n - i);
	ok(!wrong, "%zu registrations at the same time", n);
	need((ends[1] = ibv_reg_mr(pd, blocks[0], LENGTH, RDMA_ACCESS)));
	for (size_t i = 0; i < n; i += 500) {
		ends[0] = mrs[i];
		wrong += !moves(&rdma, ends, 0);
	}
	ok(!wrong, "the keys move the data");
	for (size_t i = 0; i < n; i++)
		wrong += ibv_dereg_mr(mrs[i]) != 0;
	ok(!wrong, "they can be given up");
}

struct worker {
	pthread_t thread;
	struct ibv_pd *pd;
	size_t wrong;
};

static void *register_and_move(void *argument)
{
	struct worker *worker = argument;
	uint64_t random = (uintptr_t)argument;
	struct rdma rdma;

	rdma_connect(&rdma, worker->pd);
	for (int i = 0; i < 2000; i++) {
		size_t n = rdma_random_size(&random, 16);
		char *near = malloc(n), *far = malloc(n);
		struct ibv_mr *mrs[2];

		need((mrs[0] = ibv_reg_mr(worker->pd, near, n, RDMA_ACCESS)));
		need((mrs[1] = ibv_reg_mr(worker->pd, far, n, RDMA_ACCESS)));
		rdma_fill(near, n, random);
		if (i % 20 == 0)
			worker->wrong += rdma_write(&rdma, near, mrs[0]->lkey, far,
						    mrs[1]->rkey, n) ||
					 rdma_wrong(far, n, random);
		worker->wrong += ibv_dereg_mr(mrs[0]) || ibv_dereg_mr(mrs[1]);
		free(near);
		free(far);
	}
	rdma_disconnect(&rdma);
	return NULL;
}

static void threads(void)
{
	struct worker workers[4] = {0};
	struct ibv_pd *pds[2];
	size_t wrong = 0;

	for (int i = 0; i < 2; i++)
		need((pds[i] = ibv_alloc_pd(rdma_open())));
	for (int i = 0; i < 4; i++) {
		workers[i].pd = pds[i % 2];
		need(!pthread_create(&workers[i].thread, NULL, register_and_move, &workers[i]));
	}
	for (int i = 0; i < 4; i++) {
		need(!pthread_join(workers[i].thread, NULL));
		wrong += workers[i].wrong;
	}
	ok(!wrong, "4 threads and 2 protection domains");
	ok(!ibv_dealloc_pd(pds[0]) && !ibv_dealloc_pd(pds[1]), "nothing stays registered");
}

/* For strace: no system call may stand between the two marks. */
static void pairs(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	struct ibv_mr *mr = NULL;
	int failed = 0;

	make_blocks();
	need((mr = ibv_reg_mr(pd, blocks[0], LENGTH, RDMA_ACCESS)));
	need(!ibv_dereg_mr(mr));
	need(write(-1, "begin", 5) < 0);
	for (int i = 0; i < 1000; i++)
		failed += !(mr = ibv_reg_mr(pd, blocks[i % 2], LENGTH, RDMA_ACCESS)) ||
			  ibv_dereg_mr(mr);
	need(write(-1, "end", 3) < 0);
	ok(!failed, "1000 pairs");
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {{"answer", answer}, {"iova", iova}, {"relaxed", relaxed}, {"rights", rights},
	     {"twice", twice},	 {"many", many}, {"threads", threads}, {"pairs", pairs}};

int main(int argc, char **argv)
{
	const size_t n = sizeof cases / sizeof *cases;
	size_t i;

	need(argc > 1);
	for (i = 0; i < n && strcmp(argv[1], cases[i].name); i++)
		;
	need(i < n);
	cases[i].run();
	return done_testing();
}
