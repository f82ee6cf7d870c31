/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions that glibc before 2.35 lacks. config.h ends with this. */
#pragma once

#ifndef __cplusplus

#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef HAVE_CLOSE_RANGE
static inline int close_range(unsigned first, unsigned last, int flags)
{
	return (int)syscall(436, first, last, flags);
}
#endif

/* The program has it from the library, or not at all. */
#ifndef HAVE_EXECVEAT
int execveat(int dirfd, const char *path, char *const argv[], char *const envp[], int flags)
	__attribute__((weak));
#endif

#ifndef HAVE_MALLINFO2
struct mallinfo2 {
	size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks,
		keepcost;
};
struct mallinfo2 mallinfo2(void) __attribute__((weak));
#endif

/* glibc has this function since 2.32, and to link programs with, the table until then. */
#ifndef HAVE_STRERRORDESC_NP
extern const char *const sys_errlist[];
extern int sys_nerr;

static inline const char *strerrordesc_np(int error)
{
	return error >= 0 && error < sys_nerr ? sys_errlist[error] : "Unknown error";
}
#endif

#endif
