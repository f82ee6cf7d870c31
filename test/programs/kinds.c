/* SPDX-License-Identifier: BSD-2-Clause */
/* kinds [MIB]: has so many MiB of each kind of memory in use when it ends. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t n_bytes;

static void *fill(void *from)
{
	return from == MAP_FAILED || !from ? NULL : memset(from, 1, n_bytes);
}

static void *map(int flags, int fd)
{
	return fill(mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, flags, fd, 0));
}

static void *volatile on_stack;

/* On the stack of its own, which stays until it is over. */
static void *use_stack(void *barrier)
{
	on_stack = fill(alloca(n_bytes));
	pthread_barrier_wait(barrier);
	pause();
	return barrier;
}

static int start_thread(void)
{
	static pthread_barrier_t barrier;
	pthread_attr_t attr;
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, n_bytes + (1 << 20));
	if (pthread_create(&thread, &attr, use_stack, &barrier))
		return 1;
	pthread_barrier_wait(&barrier);
	return 0;
}

int main(int argc, char **argv)
{
	FILE *file = tmpfile();

	n_bytes = argc > 1 ? strtoul(argv[1], NULL, 0) << 20 : 0;
	if (!n_bytes)
		return 0;
	if (!file || ftruncate(fileno(file), (off_t)n_bytes))
		return 2;
	return !fill(malloc(n_bytes)) || !fill(sbrk((intptr_t)n_bytes)) ||
	       !map(MAP_PRIVATE | MAP_ANONYMOUS, -1) || !map(MAP_SHARED | MAP_ANONYMOUS, -1) ||
	       !map(MAP_SHARED, fileno(file)) || start_thread();
}
