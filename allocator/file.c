/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Uses bare system calls: the C library's functions are cancellation points, and a thread
 * must not end while it holds jemalloc's locks.
 */
#include <config.h>

#include "allocator/file.h"
#include "allocator/shield.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>
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

/* Where poll() is refused, there is no telling. */
static int look_if_ready(int fd)
{
	static const struct timespec at_once;
	struct pollfd out = {.fd = fd, .events = POLLOUT};
	int saved = errno, error = 0;

	if (syscall(SYS_ppoll, &out, 1, &at_once, NULL, 0) < 0)
		error = errno == EINTR ? -EAGAIN : 0;
	else if (out.revents & POLLERR)
		error = -EPIPE;
	else if (!(out.revents & POLLOUT))
		error = -EAGAIN;
	errno = saved;
	return error;
}

int pin_file_write_line(int fd, const char *line, size_t n_bytes)
{
	int error = look_if_ready(fd);
	struct pin_shield shield;
	long n;

	if (error)
		return error;
	pin_shield_begin(&shield);
	n = pin_file_write_some(fd, line, n_bytes);
	pin_shield_end(&shield);
	return n < 0 ? (int)n : 0;
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
