/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What jemalloc calls instead of the system calls that map, unmap, protect or advise memory, or
 * open files (Makefile.am renames its calls). So nothing in the library can reach a function
 * that returns memory, whatever jemalloc's options or mallctl() ask for: it has none to call.
 *
 * They look at no more of their arguments than they name. All fail, but for munmap() and
 * mprotect(), which say that they succeeded: of munmap jemalloc would print the error.
 */
#include <config.h>

#include "allocator/io.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#define REFUSED(type, name, answer)    \
	type pin_refused_##name(void); \
	type pin_refused_##name(void)  \
	{                              \
		errno = ENOMEM;        \
		return answer;         \
	}

REFUSED(int, open, -1)
REFUSED(int, creat, -1)
REFUSED(int, close, 0)
REFUSED(long, sbrk, -1)
REFUSED(int, madvise, -1)
REFUSED(int, mprotect, 0)
REFUSED(int, munmap, 0)

/* Of its profiler, which is off (jemalloc-settings.c), and which would need libm and libgcc_s.
 */
REFUSED(int, _Unwind_Backtrace, 0)
REFUSED(long, _Unwind_GetIP, 0)
REFUSED(long, write, -1)
REFUSED(double, exp, 0)
REFUSED(double, log, 0)
REFUSED(double, round, 0)

void *pin_refused_mmap(void *addr, size_t size);
long pin_refused_syscall(long number, int fd, const void *text, size_t size);

/*
 * At its start jemalloc maps one page, to try on it what the kernel knows. It need not be one:
 * aligned, it would make all variables begin on another page.
 */
static char page_to_try[JE_PAGE];

void *pin_refused_mmap(void *addr, size_t size)
{
	if (!addr && size <= sizeof page_to_try)
		return page_to_try;
	errno = ENOMEM;
	return MAP_FAILED;
}

/* jemalloc writes its messages by this, and reads files about memory. */
long pin_refused_syscall(long number, int fd, const void *text, size_t size)
{
	if (number == SYS_write)
		return pin_io_write_some(fd, text, size);
	errno = ENOSYS;
	return -1;
}
