/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ctl NAME: prints this unsigned statistic of jemalloc. ctl set: of each line "NAME BYTES ..."
 * that it reads, sets this to what it is now, or, of 0 bytes, calls it without a value, by its
 * name and by its numbers, and prints the answer. ctl arena: whether an arena and a cache of
 * its own are as jemalloc says. Exit status 1: they are not; 2: a mallctl failed.
 */
#include <config.h>

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN_ARENA(arena) (((int)(arena) + 1) << 20 | 1 << 8) /* and no thread cache */

#define MAYBE __attribute__((weak))
MAYBE int mallctl(const char *name, void *old, size_t *old_size, void *value, size_t size);
MAYBE int mallctlnametomib(const char *name, size_t *mib, size_t *length);
MAYBE int mallctlbymib(const size_t *mib, size_t length, void *old, size_t *old_size,
		       void *value, size_t size);
MAYBE void *mallocx(size_t size, int flags);
MAYBE void *rallocx(void *p, size_t size, int flags);
MAYBE void dallocx(void *p, int flags);
MAYBE void sdallocx(void *p, size_t size, int flags);

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

static void set_all(void)
{
	char name[64], value[64];
	size_t n, mib[8], length, size;
	int error, same;

	while (scanf("%63s %zu %*[^\n]", name, &n) == 2) {
		size = n;
		memset(value, 0, sizeof value);
		if (n)
			mallctl(name, value, &size, NULL, 0);
		error = mallctl(name, NULL, NULL, n ? value : NULL, n);
		length = sizeof mib / sizeof *mib;
		same = mallctlnametomib(name, mib, &length);
		if (!same)
			same = mallctlbymib(mib, length, NULL, NULL, n ? value : NULL, n);
		printf("%s %zu %s\n", name, n,
		       error != same ? "another by its numbers" : strerrorname_np(error));
	}
}

static void must(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "ctl: not so: %s\n", what);
		exit(1);
	}
}

/* A hook that must not run, as its memory would not be the heap's. */
static void *never(void)
{
	abort();
}

/* Of all lengths, of which some move: what is left of them goes with the arena. */
static void use_arena(int flags)
{
	char *blocks[96];
	size_t n;

	for (size_t i = 0; i < 96; i++) {
		n = 1 + i * i * 97;
		blocks[i] = mallocx(n, flags | (int)(i % 21));
		must(blocks[i] && !((uintptr_t)blocks[i] % ((size_t)1 << i % 21)), "alignment");
		memset(blocks[i], (int)i, n);
	}
	for (size_t i = 0; i < 96; i += 3)
		blocks[i] = rallocx(blocks[i], 1 + (i + 30) * i * 97, flags);
	for (size_t i = 0; i < 96; i++)
		must(blocks[i][0] == (char)i && blocks[i][i * i * 97] == (char)i, "contents");
	for (size_t i = 1; i < 96; i += 6)
		dallocx(blocks[i], flags);
	for (size_t i = 2; i < 96; i += 6)
		sdallocx(blocks[i], 1 + i * i * 97, flags);
	free(realloc(blocks[95], 100000));
}

static void arenas(void)
{
	void *hooks[9] = {(void *)never}, *p = hooks;
	unsigned arena = figure("arenas.create"), found, cache,
		 before = figure("arenas.narenas");
	size_t size = sizeof found, live = mallinfo2().uordblks;

	must(mallctl("arenas.create", &found, &size, &p, sizeof p) == EPERM,
	     "hooks are refused");
	must(figure("arenas.narenas") == before, "and no arena is made");
	for (int i = 0; i < 4; i++) {
		use_arena(IN_ARENA(arena));
		must(mallinfo2().uordblks > live + (10 << 20), "an arena's blocks count");
		must_succeed("flush", mallctl("thread.tcache.flush", NULL, NULL, NULL, 0));
		control_arena(arena, i < 3 ? "reset" : "destroy");
		/* Under a limit of addresses jemalloc's own data may be among blocks, and
		 * stays. */
		must(mallinfo2().uordblks < live + (8 << 20), "all blocks go with the arena");
	}
	arena = figure("arenas.create");
	must_succeed("bind", mallctl("thread.arena", NULL, NULL, &arena, sizeof arena));
	must_succeed("flush", mallctl("thread.tcache.flush", NULL, NULL, NULL, 0));
	p = malloc(100);
	must_succeed("look up", mallctl("arenas.lookup", &found, &size, &p, sizeof p));
	must(found == arena, "a thread's arena serves it");
	cache = figure("tcache.create");
	p = mallocx(100, (int)(cache + 2) << 8);
	dallocx(p, (int)(cache + 2) << 8);
	must(malloc(100) != p && mallocx(100, (int)(cache + 2) << 8) == p,
	     "a cache serves who names it");
	must_succeed("destroy", mallctl("tcache.destroy", NULL, NULL, &cache, sizeof cache));
	must_succeed("switch", mallctl("thread.tcache.enabled", NULL, NULL, &(bool){false}, 1));
	must(mallctl("thread.tcache.flush", NULL, NULL, NULL, 0) == EFAULT,
	     "there is no cache then");
	puts("ok");
}

int main(int argc, char **argv)
{
	if (argc < 2 || !mallctl)
		return 2;
	if (!strcmp(argv[1], "set")) {
		set_all();
		return 0;
	}
	if (!strcmp(argv[1], "arena")) {
		arenas();
		return 0;
	}
	printf("%u\n", figure(argv[1]));
	return 0;
}
