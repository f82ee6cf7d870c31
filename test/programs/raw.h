/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls made without libc, so that no patched or interposed function sees them.
 */
#ifndef RAW_H
#define RAW_H

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

#endif
