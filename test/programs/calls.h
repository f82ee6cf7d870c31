/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The system calls that replace pages, made in three ways: by libc's functions, which
 * MPI libraries patch or interpose; by its syscall(); and by the kernel's own entry,
 * which no patched or interposed function sees.
 */
#ifndef CALLS_H
#define CALLS_H

#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As syscall(2), with the result or -errno; a sixth argument is 0. */
#if defined __x86_64__
static inline long raw_call(long number, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = 0;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined __aarch64__
/* Not inlined: gcc takes the registers for variables that vfork() might change. */
static __attribute__((noinline, unused)) long raw_call(long number, long a, long b, long c,
						       long d, long e)
{
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = 0;

	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}
#else
#error "which registers a system call takes is not known for this processor"
#endif

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
