/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a program may expect of ibv_reg_mr() and related verbs. Unless it says otherwise it does
 * not use the library's API, and passes without the library. Prints TAP.
 *
 *     rdma-verbs CASE [COUNT]      COUNT: for many, 10000 otherwise
 */
#include "test/programs/rdma.h"
#include "test/tap.h"

#include <pthread.h>
#include <unistd.h>

#define LENGTH 100000

static char *blocks[2]; /* of the heap */
static size_t count = 10000;

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
static bool moves(struct rdma *rdma, const struct ibv_mr *from, const struct ibv_mr *to,
		  size_t shift)
{
	char *near = from->addr, *far = to->addr;
	size_t n = from->length;
	static uint64_t seed;
	bool right;

	rdma_fill(near, n, ++seed);
	right = !rdma_write(rdma, near + shift, from->lkey, far + shift, to->rkey, n) &&
		!rdma_wrong(far, n, seed);
	memset(near, 0, n);
	return right && !rdma_read(rdma, near + shift, from->lkey, far + shift, to->rkey, n) &&
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
	ok(moves(&rdma, mrs[0], mrs[1], 0), "the keys move the data");
	ok(!ibv_dereg_mr(inner), "one can be given up");
	ok(moves(&rdma, mrs[0], mrs[1], 0), "the others work on");
	ok(!ibv_dereg_mr(mrs[0]) && !ibv_dereg_mr(mrs[1]), "they can be given up");
	rdma_disconnect(&rdma);
	ok(!ibv_dealloc_pd(pd), "the protection domain is free");
}

/* Device addresses of their own. */
static void iova(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	const size_t shift = (size_t)1 << 40;
	struct ibv_mr *mrs[2];
	struct rdma rdma;

	rdma_connect(&rdma, pd);
	make_blocks();
	for (int i = 0; i < 2; i++)
		need((mrs[i] = ibv_reg_mr_iova2(pd, blocks[i], LENGTH,
						(uintptr_t)blocks[i] + shift, RDMA_ACCESS)));
	ok(moves(&rdma, mrs[0], mrs[1], shift),
	   "the device knows the memory under the other address");
	ok(!ibv_dereg_mr(mrs[0]) && !ibv_dereg_mr(mrs[1]), "they can be given up");
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
	ok(moves(&rdma, mrs[0], mrs[1], 0), "the keys move the data");
	ok(!ibv_dereg_mr(strict), "one can be given up");
	ok(moves(&rdma, mrs[0], mrs[1], 0), "the others work on");
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
	ok(moves(&rdma, mrs[0], mrs[1], 0), "the keys move the data");
	ok(rdma_is_refused(
		   rdma_read(&rdma, blocks[1], mrs[1]->lkey, blocks[0], mrs[0]->rkey, LENGTH)),
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
	ok(moves(&rdma, others[0], others[1], 0), "the keys move the data");
	ok(!ibv_dereg_mr(others[0]) && !ibv_dereg_mr(others[1]) && !ibv_dereg_mr(own),
	   "they can be given up");
	rdma_disconnect(&rdma);
	ok(ibv_dealloc_pd(pd) == EBUSY, "the other ibv_mr still counts");
	ok(!ibv_dereg_mr(kept) && !ibv_dealloc_pd(pd), "until it is given up");
}

static void shuffle(struct ibv_mr **mrs, size_t n)
{
	uint64_t random = 1;

	for (size_t i = n; i > 1; i--) {
		size_t other = rdma_random(&random) % i;
		struct ibv_mr *last = mrs[i - 1];

		mrs[i - 1] = mrs[other];
		mrs[other] = last;
	}
}

/* Of every so many registrations, how many do not move their data to `far`. */
static size_t wrong_sample(struct rdma *rdma, struct ibv_mr **mrs, size_t n,
			   const struct ibv_mr *far)
{
	size_t wrong = 0;

	for (size_t i = 0; i < n; i += 1 + n / 40)
		wrong += !moves(rdma, mrs[i], far, 0);
	return wrong;
}

static void many(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	struct ibv_mr **mrs, *far;
	size_t wrong = 0;
	struct rdma rdma;
	char *block;

	rdma_connect(&rdma, pd);
	need((mrs = calloc(count, sizeof *mrs)) && (block = malloc(count)));
	need((blocks[0] = malloc(count)));
	need((far = ibv_reg_mr(pd, blocks[0], count, RDMA_ACCESS)));
	for (size_t i = 0; i < count; i++)
		need((mrs[i] = ibv_reg_mr(pd, block + i, count - i, RDMA_ACCESS)));
	for (size_t i = 0; i < count; i++)
		wrong += !describes(mrs[i], pd, block + i, count - i);
	ok(!wrong, "%zu registrations at the same time", count);
	shuffle(mrs, count);
	ok(!wrong_sample(&rdma, mrs, count, far), "the keys of any move the data");
	for (size_t i = count / 2; i < count; i++)
		wrong += ibv_dereg_mr(mrs[i]) != 0;
	ok(!wrong, "half of them are given up in random order");
	ok(!wrong_sample(&rdma, mrs, count / 2, far), "the keys of the others move the data");
	for (size_t i = 0; i < count / 2; i++)
		wrong += ibv_dereg_mr(mrs[i]) != 0;
	ok(!wrong, "the others can be given up");
	rdma_disconnect(&rdma);
	ok(!ibv_dereg_mr(far) && !ibv_dealloc_pd(pd), "the protection domain is free");
}

/* One inside the other, in whole pages; the one that is kept must not notice. */
static void keep_one(struct rdma *rdma, char *memory, bool inner)
{
	struct ibv_mr *outer_mr = ibv_reg_mr(rdma->pd, memory + 0x1000, 0x3000, RDMA_ACCESS);
	struct ibv_mr *inner_mr = ibv_reg_mr(rdma->pd, memory + 0x2000, 0x1000, RDMA_ACCESS);
	struct ibv_mr *kept = inner ? inner_mr : outer_mr, *far;

	need(outer_mr && inner_mr);
	need((far = ibv_reg_mr(rdma->pd, blocks[1], kept->length, RDMA_ACCESS)));
	ok(!ibv_dereg_mr(inner ? outer_mr : inner_mr), "the %s one is given up",
	   inner ? "outer" : "inner");
	ok(moves(rdma, kept, far, 0), "the other sends on");
	ok(moves(rdma, far, kept, 0), "and receives on");
	ok(!ibv_dereg_mr(kept) && !ibv_dereg_mr(far), "it can be given up");
}

static void overlap_in(char *memory)
{
	struct rdma rdma;

	rdma_connect(&rdma, ibv_alloc_pd(rdma_open()));
	make_blocks();
	for (int i = 0; i < 2; i++)
		keep_one(&rdma, memory, !i);
	rdma_disconnect(&rdma);
	ok(!ibv_dealloc_pd(rdma.pd), "the protection domain is free");
}

static void overlap(void)
{
	char *memory = aligned_alloc(0x1000, 0x4000);

	need(memory);
	overlap_in(memory);
}

/* In memory that is not of the heap. */
static void foreign(void)
{
	overlap_in(rdma_map(0x4000));
}

/* What others do meanwhile: the same memory, and memory of their own. */
static bool bustle(struct ibv_pd *pd, uint64_t *random)
{
	size_t n = rdma_random_size(random, 20);
	char *block = malloc(n);
	struct ibv_mr *mrs[2];
	bool right;

	need((mrs[0] = ibv_reg_mr(pd, block, n, RDMA_ACCESS)));
	need((mrs[1] = ibv_reg_mr(pd, blocks[rdma_random(random) % 2], LENGTH, RDMA_ACCESS)));
	right = !ibv_dereg_mr(mrs[1]) && !ibv_dereg_mr(mrs[0]);
	free(block);
	return right;
}

/* Copies of the contents of an ibv_mr are valid for as long as it is registered. */
static void copies(void)
{
	struct ibv_mr *mrs[2], copied[2], keys_only[2];
	uint64_t random = 1;
	size_t wrong = 0;
	struct rdma rdma;

	rdma_connect(&rdma, ibv_alloc_pd(rdma_open()));
	make_blocks();
	for (int i = 0; i < 2; i++) {
		need((mrs[i] = ibv_reg_mr(rdma.pd, blocks[i], LENGTH, RDMA_ACCESS)));
		memcpy(&copied[i], mrs[i], sizeof *mrs[i]);
		keys_only[i] = (struct ibv_mr){.addr = blocks[i], .length = LENGTH};
	}
	keys_only[0].lkey = mrs[0]->lkey;
	keys_only[1].rkey = mrs[1]->rkey;
	for (int i = 0; i < 1000; i++) {
		wrong += !bustle(rdma.pd, &random);
		if (i % 50 == 0)
			wrong += !moves(&rdma, i % 100 ? &copied[0] : &keys_only[0],
					i % 100 ? &copied[1] : &keys_only[1], 0);
	}
	ok(!wrong, "copied keys and structures are good while others come and go");
	for (int i = 0; i < 2; i++)
		ok(!memcmp(&copied[i], mrs[i], sizeof copied[i]), "the original is unchanged");
	ok(!ibv_dereg_mr(mrs[0]) && !ibv_dereg_mr(mrs[1]), "they can be given up");
	rdma_disconnect(&rdma);
	ok(!ibv_dealloc_pd(rdma.pd), "the protection domain is free");
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

/*
 * For strace: no system call may stand between the two marks. The first request for each block
 * does not count: it takes the pages that it needs, and no more.
 */
static void pairs(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	struct ibv_mr *mr = NULL;
	int failed = 0;

	make_blocks();
	for (int i = 0; i < 2; i++) {
		need((mr = ibv_reg_mr(pd, blocks[i], LENGTH, RDMA_ACCESS)));
		need(!ibv_dereg_mr(mr));
	}
	need(write(-1, "begin", 5) < 0);
	for (int i = 0; i < 1000; i++)
		failed += !(mr = ibv_reg_mr(pd, blocks[i % 2], LENGTH, RDMA_ACCESS)) ||
			  ibv_dereg_mr(mr);
	need(write(-1, "end", 3) < 0);
	ok(!failed, "1000 pairs");
}

static const struct rdma_case cases[] = {
	{"answer", answer}, {"iova", iova},	  {"relaxed", relaxed}, {"rights", rights},
	{"twice", twice},   {"many", many},	  {"overlap", overlap}, {"foreign", foreign},
	{"copies", copies}, {"threads", threads}, {"pairs", pairs}};

int main(int argc, char **argv)
{
	if (argc > 2)
		count = strtoul(argv[2], NULL, 10);
	rdma_run(cases, argc, argv);
	return done_testing();
}
