/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Uses bare system calls: the C library's functions are cancellation points, and a thread
 * must not end while it holds jemalloc's locks.
 */
#include <config.h>

#include "allocator/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

long pin_file_read(const char *path, char *buf, size_t size)
{
	size_t filled = 0;
	int saved = errno;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -errno : 1;

	while (n > 0 && filled < size - 1) {
		n = syscall(SYS_read, fd, buf + filled, size - 1 - filled);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			filled += (size_t)n;
		else if (n < 0)
			n = -errno;
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
	buf[filled] = '\0';
	errno = saved;
	return n < 0 ? (long)n : (long)filled;
}

long pin_file_write_some(int fd, const char *buf, size_t n_bytes)
{
	int saved = errno;
	ssize_t n;

	do
		n = syscall(SYS_write, fd, buf, n_bytes);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		n = -errno;
	errno = saved;
	return n;
}

int pin_file_write(int fd, const char *buf, size_t n_bytes)
{
	long n = 0;

	for (; n_bytes && n >= 0; n_bytes -= n > 0 ? (size_t)n : 0) {
		n = pin_file_write_some(fd, buf, n_bytes);
		buf += n > 0 ? n : 0;
	}
	return n < 0 ? (int)n : 0;
}
