/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * System calls made without libc, so that no patched or interposed function sees them. x86-64.
 */
#ifndef RAW_H
#define RAW_H

/* As syscall(2), with the result or -errno; a sixth argument is 0. */
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

#endif
