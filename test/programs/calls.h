/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The system calls that replace pages, made in three ways: by libc's functions, which
 * MPI libraries patch or interpose; by its syscall(); and by the kernel's own entry.
 */
#ifndef CALLS_H
#define CALLS_H

#include "raw.h"

#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A failed one is -1, or -errno. */
typedef long (*call)(long number, long a, long b, long c, long d, long e);

static inline long move_break(long to)
{
	sbrk(to - (long)sbrk(0));
	return (long)sbrk(0);
}

static inline long by_libc(long number, long a, long b, long c, long d, long e)
{
	switch (number) {
	case SYS_mmap:
		return (long)mmap((void *)a, (size_t)b, (int)c, (int)d, (int)e, 0);
	case SYS_munmap:
		return munmap((void *)a, (size_t)b);
	case SYS_mremap:
		return (long)mremap((void *)a, (size_t)b, (size_t)c, (int)d, (void *)e);
	case SYS_madvise:
		return madvise((void *)a, (size_t)b, (int)c);
	case SYS_shmat:
		return (long)shmat((int)a, (void *)b, (int)c);
	case SYS_shmdt:
		return shmdt((void *)a);
	default: /* SYS_brk */
		return move_break(a);
	}
}

static inline long by_syscall(long number, long a, long b, long c, long d, long e)
{
	return syscall(number, a, b, c, d, e, 0);
}

#endif
