/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * forks COUNT: forks COUNT times while two other threads allocate and free, also by the
 * function of a library if one has it. Each child allocates a little, looks at an old block,
 * and ends. Prints how many did; a child that hangs is ended by its alarm.
 */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOTS 200

__attribute__((weak)) void work_locked(void);

static atomic_bool done;
static char *inherited;

/* Frees and allocates anew, slot by slot, up to 16 KiB: until all is done, or so often. */
static void churn(unsigned seed, int rounds)
{
	char *slots[SLOTS] = {0};

	for (unsigned i = seed; rounds && !done; rounds--, i = i * 1664525 + 1013904223) {
		char **slot = &slots[i / 65536 % SLOTS];

		free(*slot);
		*slot = malloc((size_t)16 << i / 4096 % 11);
		if (!*slot)
			_exit(3);
		memset(*slot, 1, 16);
		if (work_locked && i / 65536 % 8 == 0)
			work_locked();
	}
	for (int i = 0; i < SLOTS; i++)
		free(slots[i]);
}

static void *thread(void *seed)
{
	churn((unsigned)(uintptr_t)seed, INT_MAX);
	return seed;
}

static void child(unsigned i)
{
	alarm(20);
	churn(i, 20);
	_exit(inherited[i % 100000] == 'i' ? 0 : 5);
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 0, good = 0, status;
	pthread_t others[2];

	inherited = memset(malloc(100000), 'i', 100000);
	for (uintptr_t i = 0; i < 2; i++)
		pthread_create(&others[i], NULL, thread, (void *)(i + 1));
	for (int i = 0; i < count; i++) {
		pid_t pid = fork();

		if (!pid)
			child((unsigned)i);
		good += waitpid(pid, &status, 0) == pid && status == 0;
	}
	done = true;
	for (int i = 0; i < 2; i++)
		pthread_join(others[i], NULL);
	printf("%d\n", good);
	return good != count;
}
