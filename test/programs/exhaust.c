/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * exhaust [SIZE]: allocates blocks of SIZE bytes, by default 1 MiB, until there is no memory,
 * then continues with what it has. Prints the number of blocks. Exit status 1: memory never ran
 * out; 2: it ran out without ENOMEM; 3: what followed failed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 2000

static void *blocks[MOST];

static int take_all(size_t size)
{
	int n = 0;

	while (n < MOST && (blocks[n] = malloc(size)))
		n++;
	return n;
}

static void free_all(int n)
{
	while (n--)
		free(blocks[n]);
}

int main(int argc, char **argv)
{
	size_t size = argc > 1 ? strtoul(argv[1], NULL, 0) : (size_t)1 << 20;
	int n, again;
	char *p;

	errno = 0;
	n = take_all(size);
	if (n == MOST)
		return 1;
	if (errno != ENOMEM)
		return 2;
	free_all(n);
	again = take_all(size);
	free_all(again);
	p = malloc(1000);
	if (again < n || !p)
		return 3;
	memset(p, 1, 1000);
	printf("%d\n", n);
	return 0;
}
