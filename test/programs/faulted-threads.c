/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads that allocate, from a few bytes to blocks that make the heap grow and get huge pages,
 * check their blocks, and free those of others; then a child that does the same, and executes
 * another program. For test/faults.
 */
#include "test/programs/faulted.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 3
#define BLOCKS	40
#define HUGE	((size_t)40 << 20) /* beyond what a heap is on small pages */
#define APART	((size_t)64 << 10) /* of what is touched in large ones */

struct block {
	char *start;
	size_t size;
};

static _Atomic(struct block *) left; /* by a thread, for another to free */

static void fill(const struct block *block)
{
	for (size_t i = 0; i < block->size; i += APART)
		block->start[i] = (char)(block->size + i / APART);
	block->start[block->size - 1] = 'z';
}

static void check(const struct block *block)
{
	size_t last = block->size - 1;

	for (size_t i = 0; i < last; i += APART)
		if (block->start[i] != (char)(block->size + i / APART))
			wrong("contents of a block");
	if (block->start[last] != 'z')
		wrong("the end of a block");
}

static void *allocate(unsigned i, size_t size)
{
	void *p = NULL;

	switch (i % 4) {
	case 0:
		return given(malloc(size), "malloc");
	case 1:
		p = given(calloc(1, size), "calloc");
		if (p && ((char *)p)[size / 2])
			wrong("calloc without zeroes");
		return p;
	case 2:
		return given(memalign(64, size), "memalign");
	default:
		errno = posix_memalign(&p, 4096, size);
		return given(p, "posix_memalign");
	}
}

/* If realloc fails, the block stays as it is. */
static void grow(struct block *block)
{
	size_t size = block->size * 2;
	char *p = given(realloc(block->start, size), "realloc");

	if (p)
		block->start = p;
	check(block);
	if (!p)
		return;
	block->size = size;
	fill(block);
}

static void release(struct block *blocks)
{
	for (unsigned i = 0; blocks && i < BLOCKS; i++) {
		if (blocks[i].start)
			check(&blocks[i]);
		free(blocks[i].start);
	}
	free(blocks);
}

static void *work(void *number)
{
	struct block *blocks = given(calloc(BLOCKS, sizeof *blocks), "calloc");

	for (unsigned i = 0; blocks && i < BLOCKS; i++) {
		blocks[i].size = ((size_t)24 << i % 18) + i; /* to 3 MiB */
		blocks[i].start = allocate(i + (unsigned)(uintptr_t)number, blocks[i].size);
		if (!blocks[i].start)
			continue;
		fill(&blocks[i]);
		if (i % 3 == 0)
			grow(&blocks[i]);
	}
	release(atomic_exchange(&left, blocks));
	return NULL;
}

static void work_in_threads(void)
{
	pthread_t threads[THREADS];
	bool started[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++) {
		int error = pthread_create(&threads[i], NULL, work, (void *)i);

		started[i] = !error;
		if (error)
			refused("pthread_create", error);
	}
	for (int i = 0; i < THREADS; i++)
		if (started[i])
			pthread_join(threads[i], NULL);
}

/* argv, or NULL for a child that works as its parent does. */
static void await_child(char **argv)
{
	pid_t child = fork();
	int status;

	if (child < 0) {
		refused("fork", errno);
		return;
	}
	if (!child && argv) {
		execv(argv[0], argv);
		_exit(0);
	}
	if (!child) {
		work(NULL);
		exit(0);
	}
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
	    WEXITSTATUS(status) == 1)
		wrong("a child ended otherwise than by itself");
}

int main(int argc, char **argv)
{
	char *again[] = {argv[0], (char *)"child", NULL};

	free(given(malloc(HUGE), "malloc"));
	work_in_threads();
	if (argc == 1) {
		await_child(NULL);
		await_child(again);
	}
	work(NULL);
	release(atomic_exchange(&left, NULL));
	return argc == 1 ? say_done("done") : 0;
}
