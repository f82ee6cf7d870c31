/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The memory for mpi-soak's messages: of several kinds, whose pages are mapped, unmapped and
 * replaced at random.
 */
#ifndef SOAK_MEMORY_H
#define SOAK_MEMORY_H

#include "calls.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct memory;

/* There are n_ways in which its pages are replaced; each may move it. */
struct kind {
	const char *name;
	char *(*make)(size_t n_bytes);
	void (*drop)(struct memory *);
	void (*replace)(struct memory *, unsigned way, call by);
	unsigned n_ways;
};

struct memory {
	const struct kind *kind;
	char *at;
	size_t n_bytes; /* whole pages */
};

/* A number less than the limit. */
static uint64_t draw(uint64_t *random, uint64_t limit)
{
	*random = *random * 6364136223846793005u + 1442695040888963407u;
	return (*random >> 32) % limit;
}

static char *check(const char *what, long result)
{
	if (result < 0 && result > -4096) {
		fprintf(stderr, "mpi-soak: %s failed\n", what);
		abort();
	}
	return (char *)result;
}

static char *map_memory(char *at, size_t n_bytes, int flags, int fd, call by)
{
	return check("mmap",
		     by(SYS_mmap, (long)at, (long)n_bytes, PROT_READ | PROT_WRITE, flags, fd));
}

/*
 * The kernel tells of what a system call has unmapped when the address is free already, and
 * another thread may have got it: nobody can be told in time. So its pages go before it does.
 */
static void unmap(struct memory *memory, size_t n_bytes, call by)
{
	char *at = memory->at + memory->n_bytes - n_bytes;

	if (by == raw_call)
		check("mmap", by(SYS_mmap, (long)at, (long)n_bytes, PROT_NONE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1));
	check("munmap", by(SYS_munmap, (long)at, (long)n_bytes, 0, 0, 0));
}

static void drop_mapping(struct memory *memory)
{
	unmap(memory, memory->n_bytes, raw_call);
}

static void discard(struct memory *memory, int advice, call by)
{
	check("madvise",
	      by(SYS_madvise, (long)memory->at, (long)memory->n_bytes, advice, 0, 0));
}

/* --- anonymous private memory ------------------------------------------------ */

#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

static char *make_anonymous(size_t n_bytes)
{
	return map_memory(NULL, n_bytes, ANONYMOUS, -1, raw_call);
}

static void move_onto(struct memory *memory, call by)
{
	long other = (long)make_anonymous(memory->n_bytes);

	check("mremap", by(SYS_mremap, other, (long)memory->n_bytes, (long)memory->n_bytes,
			   MREMAP_MAYMOVE | MREMAP_FIXED, (long)memory->at));
}

/* What another thread maps in between makes it move. */
static void replace_anonymous(struct memory *memory, unsigned way, call by)
{
	switch (way) {
	case 0:
		unmap(memory, memory->n_bytes, by);
		memory->at = map_memory(memory->at, memory->n_bytes, ANONYMOUS, -1, by);
		break;
	case 1:
		map_memory(memory->at, memory->n_bytes, ANONYMOUS | MAP_FIXED, -1, by);
		break;
	case 2:
		move_onto(memory, by);
		break;
	default:
		discard(memory, MADV_DONTNEED, by);
	}
}

/* --- such that shrinks and grows at its end, like the program break ----------- */

/* With the rest of its reservation inaccessible, nobody else comes there. */
static void replace_end(struct memory *memory, unsigned way, call by)
{
	size_t part = memory->n_bytes / 4096 / (way + 1) * 4096;
	char *at = memory->at + memory->n_bytes - part;

	if (!part)
		return;
	check("mmap", by(SYS_mmap, (long)at, (long)part, PROT_NONE, ANONYMOUS | MAP_FIXED, -1));
	check("mprotect", mprotect(at, part, PROT_READ | PROT_WRITE));
}

/* --- memory files -------------------------------------------------------------- */

static char *map_file(char *at, size_t n_bytes, int flags, call by)
{
	int fd = memfd_create("soak", MFD_CLOEXEC);

	check("ftruncate", ftruncate(fd, (off_t)n_bytes));
	at = map_memory(at, n_bytes, MAP_SHARED | flags, fd, by);
	close(fd);
	return at;
}

static char *make_file(size_t n_bytes)
{
	return map_file(NULL, n_bytes, 0, raw_call);
}

static void replace_file(struct memory *memory, unsigned way, call by)
{
	switch (way) {
	case 0:
		unmap(memory, memory->n_bytes, by);
		memory->at = map_file(memory->at, memory->n_bytes, 0, by);
		break;
	case 1:
		map_file(memory->at, memory->n_bytes, MAP_FIXED, by);
		break;
	default:
		discard(memory, MADV_REMOVE, by);
	}
}

/* --- heap blocks --------------------------------------------------------------- */

static char *make_block(size_t n_bytes)
{
	char *block = malloc(n_bytes);

	return check("malloc", block ? (long)block : -1);
}

static void drop_block(struct memory *memory)
{
	free(memory->at);
}

static void replace_block(struct memory *memory, unsigned way, call by)
{
	(void)by;
	if (way == 0) {
		free(memory->at);
		memory->at = malloc(memory->n_bytes);
	} else {
		memory->at = realloc(memory->at, memory->n_bytes / 2);
		memory->at = realloc(memory->at, memory->n_bytes);
	}
	check("malloc", memory->at ? (long)memory->at : -1);
}

/* ------------------------------------------------------------------------------- */

static const struct kind kinds[] = {
	{"a private mapping", make_anonymous, drop_mapping, replace_anonymous, 4},
	{"a mapping cut and grown", make_anonymous, drop_mapping, replace_end, 4},
	{"a memory file", make_file, drop_mapping, replace_file, 3},
	{"a heap block", make_block, drop_block, replace_block, 2},
};

/* Between two messages: other pages, by libc or behind it, or other memory. */
static void change(struct memory *memory, size_t n_bytes, uint64_t *random)
{
	call by = draw(random, 2) ? raw_call : by_libc;
	uint64_t chance = draw(random, 8);

	n_bytes = (n_bytes + 4095) & -4096ul;
	if (memory->kind && (n_bytes > memory->n_bytes || chance == 0)) {
		memory->kind->drop(memory);
		memory->kind = NULL;
	}
	if (!memory->kind) {
		memory->kind = &kinds[draw(random, sizeof kinds / sizeof *kinds)];
		memory->n_bytes = n_bytes;
		memory->at = memory->kind->make(n_bytes);
	} else if (chance < 6) {
		memory->kind->replace(memory, (unsigned)draw(random, memory->kind->n_ways), by);
	}
}

#endif
