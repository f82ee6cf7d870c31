/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * twice FROM TO: frees a small block twice, in TO - FROM different ways, each in a child: of
 * any size, among few or many others, with nothing or thousands of calls between the two and
 * after them, by one thread or two. Prints how many of the children were ended by SIGABRT, how
 * many were not, and how many got the block anew before they could free it twice. What is not
 * noticed may crash, as with any malloc.
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST	   20000
#define MOST_SMALL 14000

enum { REUSED = 3 };

static unsigned long seed;
static void *blocks[MOST];
static unsigned n_blocks;
static void *victim;

static unsigned below(unsigned n)
{
	seed = seed * 6364136223846793005 + 1442695040888963407;
	return (unsigned)(seed >> 33) % n;
}

/* As often from 8 to 15 as from 4096 to 8191. */
static unsigned any_up_to(unsigned most)
{
	unsigned n, magnitude = 1;

	while (1U << magnitude < most)
		magnitude++;
	n = (1U << below(magnitude + 1)) / 2;
	n += below(n + 1);
	return n < most ? n : most;
}

static void take(size_t size)
{
	void *p = malloc(size);

	if (victim && p == victim)
		_exit(REUSED);
	if (n_blocks < MOST)
		blocks[n_blocks++] = p;
}

static void *drawn(void)
{
	unsigned i = below(n_blocks);
	void *p = blocks[i];

	blocks[i] = blocks[--n_blocks];
	return p;
}

static void *free_it(void *p)
{
	free(p);
	return NULL;
}

/* One of eight times by another thread. */
static void free_somewhere(void *p)
{
	pthread_t thread;

	if (below(8) || pthread_create(&thread, NULL, free_it, p))
		free(p);
	else
		pthread_join(thread, NULL);
}

enum manner { ONLY_FREES, SAME_SIZE, ANY_SIZE };

static void go_on(unsigned n, enum manner manner, size_t size)
{
	while (n--) {
		if (manner != ONLY_FREES && below(2))
			take(manner == SAME_SIZE ? size : 1 + any_up_to(MOST_SMALL));
		else if (n_blocks)
			free(drawn());
	}
}

static void free_twice(unsigned way)
{
	enum manner manner;
	size_t size;

	seed = way * 2654435761UL + 1;
	for (int i = 0; i < 5; i++)
		below(2);
	size = 1 + any_up_to(MOST_SMALL);
	manner = (enum manner)below(3);
	for (unsigned n = 1 + any_up_to(5000); n; n--)
		take(size);
	victim = drawn();
	free_somewhere(victim);
	go_on(any_up_to(4000), manner, size);
	free_somewhere(victim);
	victim = NULL;
	go_on(any_up_to(MOST), manner, size);
}

int main(int argc, char **argv)
{
	const struct rlimit none = {0, 0};
	int seen = 0, unseen = 0, reused = 0, status = 0;

	if (argc != 3)
		return 2;
	setrlimit(RLIMIT_CORE, &none);
	for (int way = atoi(argv[1]); way < atoi(argv[2]); way++) {
		pid_t child = fork();

		if (!child) {
			close(STDERR_FILENO);
			free_twice((unsigned)way);
			_exit(0);
		}
		if (waitpid(child, &status, 0) != child)
			return 1;
		if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
			seen++;
		else if (WIFEXITED(status) && WEXITSTATUS(status) == REUSED)
			reused++;
		else
			unseen++;
	}
	printf("%d %d %d\n", seen, unseen, reused);
	return 0;
}
