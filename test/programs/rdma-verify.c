/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registered heap memory between free pages, while other threads allocate, register and free,
 * and the kernel is told to compact memory again and again, which moves every page that it may.
 * Needs the privilege for that.
 *
 *     rdma-verify SECONDS [call] [leave] [busy]
 *
 * call: asks pinalloc_verify() each time; prints "moved" with what it says, or
 * "verify" with the error. leave: ends with everything registered. busy: one more
 * thread does nothing but ask, also while the program ends.
 */
#include "preload/pinalloc.h"
#include "test/programs/rdma.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCKS 48
#define BLOCK  MIB
#define PAGE   (4 * KIB)

static struct ibv_pd *pd;
static char *blocks[BLOCKS];
static struct ibv_mr *mrs[BLOCKS];
static _Atomic bool over;

/*
 * Allocates page by page, alternating with a mapping that is then unmapped: half of the memory
 * around is free.
 */
static void scatter(void)
{
	char *between = mmap(NULL, BLOCKS * BLOCK, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	need(between != MAP_FAILED);
	for (size_t i = 0; i < BLOCKS; i++) {
		need((blocks[i] = malloc(BLOCK)));
		for (size_t at = 0; at < BLOCK; at += PAGE) {
			rdma_fill(blocks[i] + at, PAGE, i);
			between[i * BLOCK + at] = 1;
		}
	}
	need(!munmap(between, BLOCKS * BLOCK));
}

static void *churn(void *seed)
{
	uint64_t random = (uintptr_t)seed;

	while (!over) {
		size_t length = rdma_random_size(&random, 21);
		char *block = malloc(length);
		struct ibv_mr *mr;

		need(block && (mr = ibv_reg_mr(pd, block, length, RDMA_ACCESS)));
		rdma_fill(block, length, random);
		need(!rdma_wrong(block, length, random));
		need(!ibv_dereg_mr(mr));
		free(block);
	}
	return NULL;
}

static void compact(void)
{
	int fd = open("/proc/sys/vm/compact_memory", O_WRONLY);

	need(fd >= 0 && write(fd, "1", 1) == 1 && !close(fd));
}

static void ask(void)
{
	size_t moved = 0;
	int error;

	need(pinalloc_verify);
	error = pinalloc_verify(&moved);
	if (error)
		printf("verify %s\n", strerror(-error));
	else
		printf("moved %zu\n", moved);
}

static void *keep_asking(void *unused)
{
	need(pinalloc_verify);
	for (;;)
		pinalloc_verify(NULL);
	return unused;
}

static bool given(const char *word, int argc, char **argv)
{
	int i;

	for (i = 2; i < argc && strcmp(argv[i], word); i++)
		;
	return i < argc;
}

static void give_up(void)
{
	for (size_t i = 0; i < BLOCKS; i++)
		need(!ibv_dereg_mr(mrs[i]));
	need(!ibv_dealloc_pd(pd));
}

/* Blocks and what becomes of them are right until the end. */
static void compact_and_churn(double seconds, bool call)
{
	double end = rdma_now() + seconds;
	pthread_t threads[2];

	for (size_t i = 0; i < 2; i++)
		need(!pthread_create(&threads[i], NULL, churn, (void *)(i + 1)));
	do {
		if (call)
			ask();
		compact();
	} while (rdma_now() < end);
	if (call)
		ask();
	over = true;
	for (size_t i = 0; i < 2; i++)
		need(!pthread_join(threads[i], NULL));
	for (size_t i = 0; i < BLOCKS; i++)
		for (size_t at = 0; at < BLOCK; at += PAGE)
			need(!rdma_wrong(blocks[i] + at, PAGE, i));
}

int main(int argc, char **argv)
{
	pthread_t thread;

	need((pd = ibv_alloc_pd(rdma_open())));
	scatter();
	for (size_t i = 0; i < BLOCKS; i++)
		need((mrs[i] = ibv_reg_mr(pd, blocks[i], BLOCK, RDMA_ACCESS)));
	if (given("busy", argc, argv))
		need(!pthread_create(&thread, NULL, keep_asking, NULL));
	compact_and_churn(argc > 1 ? atof(argv[1]) : 1, given("call", argc, argv));
	if (!given("leave", argc, argv))
		give_up();
	return 0;
}
