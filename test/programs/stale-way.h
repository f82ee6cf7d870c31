/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Defines a way of replacing the pages behind a buffer, and shared helpers. Blocks are not
 * freed after their case, so that no case gets an address of an earlier one.
 */
#ifndef STALE_WAY_H
#define STALE_WAY_H

#include "calls.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define BYTES	  ((size_t)4 << 20)
#define PAGE	  ((size_t)4096)
#define HUGE_PAGE ((size_t)2 << 20)

/* Where messages go to or come from, up to BYTES, the block it lies in, and whose pages it has.
 */
struct place {
	char *buffer;
	size_t n_bytes;
	char *block;
	int fd;
};

/* By severity: of the two ranks' results the higher one counts. */
enum result { DONE, ELSEWHERE, FAILED };

/* What a userfaultfd is told of, before the call returns; and also possible in the heap. */
enum { TOLD = 1, ANY };

/* Where replacing leaves a hole, or what cannot be used, something has to fill it. */
struct way {
	const char *group, *name;
	enum result (*make)(struct place *);
	enum result (*replace)(struct place *, call);
	enum result (*fill)(struct place *, call);
	call by;
	unsigned of;
};

static inline enum result replace_pages(const struct way *way, struct place *place)
{
	enum result result = way->replace(place, way->by);

	return result || !way->fill ? result : way->fill(place, way->by);
}

/* A way's function that is one expression, of the place and the call. */
#define MAKES(name, expression)                      \
	static enum result name(struct place *place) \
	{                                            \
		return expression;                   \
	}
#define REPLACES(name, expression)                                           \
	static enum result name(__attribute__((unused)) struct place *place, \
				__attribute__((unused)) call by)             \
	{                                                                    \
		return expression;                                           \
	}

static inline enum result succeeded(bool success)
{
	return success ? DONE : FAILED;
}

/* With a page before and after it that stays, so that no mapping grows together. */
static char *find_room(size_t n_bytes, size_t alignment)
{
	char *at = mmap(NULL, n_bytes + 2 * alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);

	return at == MAP_FAILED ? NULL : at + alignment - (uintptr_t)at % alignment;
}

static bool map_at(char *at, size_t n_bytes, int flags, int fd, call by)
{
	return (char *)by(SYS_mmap, (long)at, (long)n_bytes, PROT_READ | PROT_WRITE, flags,
			  fd) == at;
}

/* Of another kind than anonymous private memory. */
static enum result make_of(struct place *place, size_t alignment, int flags, int fd)
{
	char *at = find_room(place->n_bytes, alignment);

	if (!at || !map_at(at, place->n_bytes, flags | MAP_FIXED, fd, raw_call))
		return FAILED;
	place->buffer = place->block = at;
	place->fd = fd;
	return DONE;
}

static enum result replace_unmap(struct place *place, call by)
{
	return succeeded(!by(SYS_munmap, (long)place->buffer, (long)place->n_bytes, 0, 0, 0));
}

/* Somebody else may have taken the address in between. */
static enum result map_again(struct place *place, int flags, int fd, call by)
{
	close(place->fd);
	place->fd = fd;
	return map_at(place->buffer, place->n_bytes, flags | MAP_FIXED_NOREPLACE, fd, by)
		       ? DONE
		       : ELSEWHERE;
}

static enum result advise(const struct place *place, int advice, call by)
{
	return succeeded(
		!by(SYS_madvise, (long)place->buffer, (long)place->n_bytes, advice, 0, 0));
}

/* In a child, which exits with what the function returns. */
static enum result in_child(int (*function)(const struct place *), const struct place *place)
{
	int status;
	pid_t child = fork();

	if (!child)
		_exit(function(place));
	return succeeded(child > 0 && waitpid(child, &status, 0) == child && !status);
}

/* In a child that is there from the start: an MPI library may forget all it has
   registered when one is made. Ends with its parent. */
static struct {
	pid_t process;
	int hint;
} helper;

static enum result keep_child(int (*function)(const struct place *), const struct place *place)
{
	int ends[2];
	char hint;

	if (pipe(ends))
		return FAILED;
	helper.hint = ends[1];
	helper.process = fork();
	if (!helper.process) {
		close(ends[1]);
		_exit(read(ends[0], &hint, 1) == 1 ? function(place) : 0);
	}
	close(ends[0]);
	return succeeded(helper.process > 0);
}

/* Once. */
static enum result let_child(void)
{
	pid_t process = helper.process;
	int status;

	helper.process = 0;
	return succeeded(process && write(helper.hint, "", 1) == 1 &&
			 waitpid(process, &status, 0) == process && !status);
}

#endif
