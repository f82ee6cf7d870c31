/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a test has run beside itself: threads, a child, and those that have a pace of their own.
 */
#ifndef BESIDE_H
#define BESIDE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_THREADS 1000

/* Runs a function in n threads, which get the numbers from 1 on, and adds up what they return.
 */
static inline uintptr_t in_threads(unsigned n, void *(*run)(void *number))
{
	pthread_t threads[MOST_THREADS];
	uintptr_t sum = 0;
	void *result;

	for (uintptr_t i = 0; i < n; i++)
		if (i >= MOST_THREADS ||
		    pthread_create(&threads[i], NULL, run, (void *)(i + 1)))
			abort();
	for (unsigned i = 0; i < n; i++) {
		pthread_join(threads[i], &result);
		sum += (uintptr_t)result;
	}
	return sum;
}

/* Whether it holds in a child. */
static inline bool in_child(bool (*holds)(void))
{
	int status = -1;
	pid_t child = fork();

	if (!child)
		_exit(!holds());
	return child > 0 && waitpid(child, &status, 0) == child && !status;
}

/* Whether it holds within a minute; under a sanitizer others are slow. In check-fast: 10 s. */
#define soon(holds)                                                                       \
	({                                                                                \
		for (int n_ms = getenv("TEST_FAST") ? 10000 : 60000; n_ms-- && !(holds);) \
			usleep(1000);                                                     \
		!!(holds);                                                                \
	})

#endif
