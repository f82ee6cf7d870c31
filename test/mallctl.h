/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEST_MALLCTL_H
#define TEST_MALLCTL_H

#include <stdint.h>
#include <stdio.h>

#define JEMALLOC_EXPORT /* clang refuses "default" where the allocator says "hidden" */
#include <jemalloc/jemalloc.h>

/* A number of jemalloc's, as it is now, of type size_t or unsigned. */
static inline size_t figure(const char *name)
{
	uint64_t epoch = 1;
	size_t n = 0, size = sizeof n;

	mallctl("epoch", NULL, NULL, &epoch, sizeof epoch);
	if (!mallctl(name, &n, &size, NULL, 0))
		return n;
	size = sizeof(unsigned);
	if (mallctl(name, &n, &size, NULL, 0))
		printf("# there is no %s\n", name);
	return n;
}

#endif
