/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What test/mutants includes in each source with mutants, before all else: so it must not read
 * a header of the C library. Weak: a program has one of each, however many sources have it.
 */
#ifndef MUTANTS_H
#define MUTANTS_H

#include <asm/unistd.h>

#define MUTANTS_ONE  __attribute__((weak, visibility("hidden")))
#define MUTANTS_MOST 4096

extern int *__errno_location(void) __attribute__((const));
extern long syscall(long number, ...);

/* test/mutants writes what is behind the mark: a bit for each mutant that is there, and a file
 * with a byte for each, to be set for those that are reached, or "". */
MUTANTS_ONE const volatile struct {
	char mark[16];
	unsigned char bits[MUTANTS_MOST / 8];
	char path[108];
} mutants_now = {"the_mutants_now:", "", ""};

MUTANTS_ONE unsigned char mutants_unseen[MUTANTS_MOST], *mutants_reached;
MUTANTS_ONE void mutants_reach(int number);
MUTANTS_ONE __attribute__((noinline)) void mutants_reach(int number)
{
	int error = *__errno_location();
	long fd;

	if (!mutants_reached) {
		fd = syscall(__NR_openat, -100, mutants_now.path,
			     02000002); /* O_RDWR | O_CLOEXEC */
		mutants_reached = (void *)syscall(__NR_mmap, 0L, (long)MUTANTS_MOST, 3L, 1L, fd,
						  0L);
		if (fd < 0 || mutants_reached == (void *)-1)
			mutants_reached = mutants_unseen;
		syscall(__NR_close, fd);
		*__errno_location() = error;
	}
	mutants_reached[number] = 1;
}

static inline int mutants_are(int number)
{
	if (__builtin_expect(mutants_now.path[0], 0))
		mutants_reach(number);
	return mutants_now.bits[number / 8] >> number % 8 & 1;
}

#endif
