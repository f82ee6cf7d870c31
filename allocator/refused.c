/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What jemalloc calls instead of the system calls that map, unmap, protect or advise memory, or
 * open files (Makefile.am renames its calls). So nothing in the library can reach a function
 * that returns memory, whatever jemalloc's options or mallctl() ask for: it has none to call.
 *
 * As in their manual pages, except that all fail, or do nothing. munmap() and mprotect() say
 * that they succeeded: of munmap jemalloc would print the error.
 */
#include <config.h>

#include "allocator/base.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>

void *pin_refused_mmap(void *addr, size_t size, int protection, int flags, int fd,
		       off_t offset);
int pin_refused_munmap(void *addr, size_t size);
int pin_refused_mprotect(void *addr, size_t size, int protection);
int pin_refused_madvise(void *addr, size_t size, int advice);
void *pin_refused_sbrk(intptr_t n_bytes);
int pin_refused_open(const char *path, int flags, ...);
long pin_refused_syscall(long number, ...);

/*
 * At its start jemalloc maps one page, to try on it what the kernel knows. It need not be one:
 * aligned, it would make all variables begin on another page.
 */
static char page_to_try[JE_PAGE];

void *pin_refused_mmap(void *addr, size_t size, int protection, int flags, int fd, off_t offset)
{
	(void)protection;
	(void)flags;
	(void)fd;
	(void)offset;
	if (!addr && size <= sizeof page_to_try)
		return page_to_try;
	errno = ENOMEM;
	return MAP_FAILED;
}

int pin_refused_munmap(void *addr, size_t size)
{
	(void)addr;
	(void)size;
	return 0;
}

int pin_refused_mprotect(void *addr, size_t size, int protection)
{
	(void)addr;
	(void)size;
	(void)protection;
	return 0;
}

int pin_refused_madvise(void *addr, size_t size, int advice)
{
	(void)addr;
	(void)size;
	(void)advice;
	errno = EINVAL;
	return -1;
}

void *pin_refused_sbrk(intptr_t n_bytes)
{
	(void)n_bytes;
	errno = ENOMEM;
	return (void *)-1;
}

int pin_refused_open(const char *path, int flags, ...)
{
	(void)path;
	(void)flags;
	errno = ENOENT;
	return -1;
}

/* jemalloc writes its messages by this, and reads files about memory. */
long pin_refused_syscall(long number, ...)
{
	va_list args;
	const void *text;
	size_t size;
	long fd;

	if (number != SYS_write) {
		errno = ENOSYS;
		return -1;
	}
	va_start(args, number);
	fd = va_arg(args, long);
	text = va_arg(args, const void *);
	size = va_arg(args, size_t);
	va_end(args);
	return write((int)fd, text, size);
}
