/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * meddle THREADS SECONDS [fork]: threads allocate, resize and free blocks of all sizes and pass
 * some to each other, while others begin and end; with `fork` children do the same. Whoever
 * frees a block looks whether it has still what was written to its ends. Ends with 0 if all
 * had.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIVE	64
#define THREADS 64

static struct block {
	char *start;
	size_t size;
} passed[LIVE];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool is_over;

static unsigned any(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(*seed >> 33);
}

/* Half of them small, some of several pages, few large. */
static size_t some_size(uint64_t *seed)
{
	unsigned k = any(seed) % 8;

	if (k < 4)
		return 16 + any(seed) % 1009;
	if (k < 6)
		return 2048 + any(seed) % 12000;
	return k < 7 ? 16384 + any(seed) % 49152 : 65536 + any(seed) % 983040;
}

static void need(int condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "meddle: %s\n", what);
	abort();
}

static void fill(struct block *block, char mark)
{
	need(block->start != NULL, "no memory");
	block->start[0] = block->start[block->size - 1] = mark;
}

static void check(const struct block *block, char mark)
{
	need(block->start[0] == mark && block->start[block->size - 1] == mark,
	     "a block was overwritten");
}

static void pass(struct block *block, unsigned i)
{
	struct block before;

	pthread_mutex_lock(&lock);
	before = passed[i];
	passed[i] = *block;
	pthread_mutex_unlock(&lock);
	if (before.start)
		check(&before, (char)i);
	free(before.start);
}

static void use(struct block *block, unsigned i, uint64_t *seed)
{
	unsigned way = any(seed) % 8;
	size_t size = some_size(seed);

	if (block->start)
		check(block, (char)i);
	if (way == 0 && block->start) {
		block->start = realloc(block->start, size);
		need(block->start && block->start[0] == (char)i, "realloc lost what was there");
	} else {
		if (way < 4 && block->start)
			pass(block, i);
		else
			free(block->start);
		block->start = way % 2 ? malloc(size) : calloc(1, size);
	}
	block->size = size;
	fill(block, (char)i);
}

static void work(uint64_t seed, unsigned rounds)
{
	struct block blocks[LIVE] = {{NULL, 0}};

	for (unsigned n = 0; rounds ? n < rounds : !is_over; n++) {
		unsigned i = any(&seed) % LIVE;

		use(&blocks[i], i, &seed);
	}
	for (unsigned i = 0; i < LIVE; i++)
		free(blocks[i].start);
}

static void *for_long(void *seed)
{
	work((uintptr_t)seed, 0);
	return NULL;
}

static void *briefly(void *seed)
{
	work((uintptr_t)seed, 300);
	return NULL;
}

static void in_child(uintptr_t seed)
{
	pthread_t thread;

	alarm(60);
	work(seed, 2000);
	pthread_create(&thread, NULL, briefly, (void *)(seed + 1));
	pthread_join(thread, NULL);
	_exit(0);
}

int main(int argc, char **argv)
{
	unsigned n_threads = (unsigned)atoi(argv[1]);
	time_t end = time(NULL) + atoi(argv[2]);
	pthread_t threads[THREADS], brief;
	pid_t child = 0;
	int status = 0;

	for (uintptr_t i = 0; i < n_threads && i < THREADS; i++)
		pthread_create(&threads[i], NULL, for_long, (void *)(i + 1));
	for (uintptr_t i = 100; time(NULL) < end && !status; i++) {
		pthread_create(&brief, NULL, briefly, (void *)i);
		if (argc > 3) {
			/* Or the child might have half of a block that is being passed. */
			pthread_mutex_lock(&lock);
			child = fork();
			pthread_mutex_unlock(&lock);
			if (!child)
				in_child(i + 1000000);
		}
		if (child)
			waitpid(child, &status, 0);
		pthread_join(brief, NULL);
	}
	is_over = 1;
	for (unsigned i = 0; i < n_threads && i < THREADS; i++)
		pthread_join(threads[i], NULL);
	if (status)
		fprintf(stderr, "meddle: a child ended with %#x\n", (unsigned)status);
	return status != 0;
}
