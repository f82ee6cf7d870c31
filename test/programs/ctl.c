/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ctl NAME: prints this unsigned statistic of jemalloc. ctl purge: uses every mallctl that
 * returns memory to the kernel, on arena 0 and on an arena of its own, and prints "address
 * size" of the blocks, like churn. Exit status 1: what it still held was damaged; 2: a mallctl
 * failed.
 */
#include <config.h>

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK		((size_t)8 << 20)
#define ALL_ARENAS	4096
#define IN_ARENA(arena) (((int)(arena) + 1) << 20 | 1 << 8) /* and no thread cache */

typedef int mallctl_fn(const char *name, void *old, size_t *old_size, void *new_value,
		       size_t new_size);
typedef void *mallocx_fn(size_t size, int flags);

static mallctl_fn *mallctl;

static void must_succeed(const char *name, int error)
{
	if (!error)
		return;
	fprintf(stderr, "ctl: %s: %s\n", name, strerror(error));
	exit(2);
}

static void control_arena(unsigned arena, const char *verb)
{
	char name[64];

	snprintf(name, sizeof name, "arena.%u.%s", arena, verb);
	must_succeed(name, mallctl(name, NULL, NULL, NULL, 0));
}

static unsigned figure(const char *name)
{
	unsigned value = 0;
	size_t size = sizeof value;

	must_succeed(name, mallctl(name, &value, &size, NULL, 0));
	return value;
}

static char *filled(char *p)
{
	memset(p, 0x7e, BLOCK);
	printf("%#lx %zu\n", (unsigned long)p, BLOCK);
	return p;
}

/* The mallctls that return free memory, with free memory to return. */
static void purge(unsigned arena)
{
	free(filled(malloc(BLOCK)));
	control_arena(arena, "decay");
	control_arena(arena, "purge");
	control_arena(ALL_ARENAS, "decay");
	control_arena(ALL_ARENAS, "purge");
}

/* The mallctls that return a whole arena: used, reset, used again, destroyed. */
static void destroy(mallocx_fn *mallocx)
{
	unsigned arena = figure("arenas.create");

	filled(mallocx(BLOCK, IN_ARENA(arena)));
	control_arena(arena, "reset");
	filled(mallocx(BLOCK, IN_ARENA(arena)));
	control_arena(arena, "purge");
	control_arena(arena, "destroy");
}

static void must_be(const char *p, char value, const char *what)
{
	if (*p == value && !memcmp(p, p + 1, BLOCK - 1))
		return;
	fprintf(stderr, "ctl: %s\n", what);
	exit(1);
}

int main(int argc, char **argv)
{
	mallocx_fn *mallocx = (mallocx_fn *)dlsym(RTLD_DEFAULT, "mallocx");
	char *kept;

	mallctl = (mallctl_fn *)dlsym(RTLD_DEFAULT, "mallctl");
	if (argc < 2 || !mallctl || !mallocx)
		return 2;
	if (strcmp(argv[1], "purge")) {
		printf("%u\n", figure(argv[1]));
		return 0;
	}
	kept = filled(malloc(BLOCK));
	for (int round = 0; round < 3; round++) {
		purge(0);
		destroy(mallocx);
	}
	must_be(kept, 0x7e, "a block that was held has changed");
	must_be(calloc(1, BLOCK), 0, "calloc without zeroes");
	return 0;
}
