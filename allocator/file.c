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

int pin_file_open(const char *path)
{
	return (int)pin_result(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
}

void pin_file_close(int fd)
{
	if (fd >= 0)
		pin_result(syscall(SYS_close, fd));
}

long pin_file_read_some(int fd, char *buf, size_t size)
{
	long n;

	do
		n = pin_result(syscall(SYS_read, fd, buf, size));
	while (n == -EINTR);
	return n;
}

long pin_file_read(const char *path, char *buf, size_t size)
{
	int fd = pin_file_open(path);
	size_t filled = 0;
	long n = fd;

	while (n >= 0 && filled < size - 1 &&
	       (n = pin_file_read_some(fd, buf + filled, size - 1 - filled)) > 0)
		filled += (size_t)n;
	pin_file_close(fd);
	buf[filled] = '\0';
	return n < 0 ? n : (long)filled;
}

size_t pin_file_number(const char *path, const char *field, size_t otherwise)
{
	int fd = pin_file_open(path);
	size_t number = 0, matched = 0;
	bool found = false, ended = fd < 0;
	char text[1024];
	long n;

	while (!ended && (n = pin_file_read_some(fd, text, sizeof text)) > 0)
		for (char *p = text; p < text + n && !ended; p++) {
			if (field[matched])
				matched = *p == field[matched] ? matched + 1 : *p == *field;
			else if (*p >= '0' && *p <= '9')
				number = number * 10 + (size_t)(*p - '0'), found = true;
			else
				ended = found || (*p != ' ' && *p != '\t');
		}
	pin_file_close(fd);
	return found ? number : otherwise;
}

long pin_file_write_some(int fd, const char *buf, size_t n_bytes)
{
	long n;

	do
		n = pin_result(syscall(SYS_write, fd, buf, n_bytes));
	while (n == -EINTR);
	return n;
}

/* Where poll() is refused, there is no telling. */
static int look_if_ready(int fd)
{
	static const struct timespec at_once;
	struct pollfd out = {.fd = fd, .events = POLLOUT};
	long n = pin_result(syscall(SYS_ppoll, &out, 1, &at_once, NULL, 0));

	if (n < 0 && n != -EINTR)
		return 0;
	if (out.revents & POLLERR)
		return -EPIPE;
	return out.revents & POLLOUT ? 0 : -EAGAIN;
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
