/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * short-threads N: takes all memory there is, frees N blocks of 1 MiB, and lets threads
 * allocate that never have, each also in its last destructor; meanwhile the process forks, and
 * the child allocates. Then all memory is freed, and the same threads get some. Exit status 1:
 * memory never ran out; 2: a thread did not start; 3: NULL without ENOMEM; 4: a thread got
 * nothing when there was memory; 5: the child failed; 6: a destructor got nothing.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 12
#define MOST	4000
#define MIB	((size_t)1 << 20)

static void *blocks[MOST];
static pthread_barrier_t is_full, tried, is_free;
static pthread_key_t key;

/* Whether there was memory. */
static int use(size_t size)
{
	void *p;

	errno = 0;
	p = malloc(size);
	if (!p && errno != ENOMEM)
		_exit(3);
	if (p)
		memset(p, 1, size);
	free(p);
	return p != NULL;
}

static void last(void *unused)
{
	if (!use(5000))
		_exit(6);
}

static void *allocates(void *unused)
{
	pthread_setspecific(key, &key);
	pthread_barrier_wait(&is_full);
	use(1);
	use(100);
	use(100000);
	pthread_barrier_wait(&tried);
	pthread_barrier_wait(&is_free);
	if (!use(1) || !use(100) || !use(100000))
		_exit(4);
	return unused;
}

static void fork_one(void)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		use(100);
		use(100000);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		_exit(5);
}

static int take_all(void)
{
	int n = 0;

	while (n < MOST && (blocks[n] = malloc(MIB)))
		n++;
	return n;
}

static void free_some(int from, int to)
{
	for (int i = from; i < to; i++)
		free(blocks[i]);
}

int main(int argc, char **argv)
{
	int n, n_freed = argc > 1 ? atoi(argv[1]) : 0;
	pthread_t threads[THREADS];

	pthread_barrier_init(&is_full, NULL, THREADS + 1);
	pthread_barrier_init(&tried, NULL, THREADS + 1);
	pthread_barrier_init(&is_free, NULL, THREADS + 1);
	pthread_key_create(&key, last);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, allocates, NULL))
			return 2;
	n = take_all();
	if (n == MOST || n < n_freed)
		return 1;
	free_some(0, n_freed);
	pthread_barrier_wait(&is_full);
	fork_one();
	pthread_barrier_wait(&tried);
	free_some(n_freed, n);
	pthread_barrier_wait(&is_free);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	puts("all had memory");
	return 0;
}
