/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Uses bare system calls: the C library's functions are cancellation points, and a thread
 * must not end while it holds jemalloc's locks.
 */
#include <config.h>

#include "allocator/io.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

int pin_io_open(const char *path)
{
	return (int)pin_result(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
}

void pin_io_close(int fd)
{
	if (fd >= 0)
		pin_result(syscall(SYS_close, fd));
}

long pin_io_read_some(int fd, char *buf, size_t size)
{
	long n;

	do
		n = pin_result(syscall(SYS_read, fd, buf, size));
	while (n == -EINTR);
	return n;
}

long pin_io_read(const char *path, char *buf, size_t size)
{
	int fd = pin_io_open(path);
	size_t filled = 0;
	long n = fd;

	while (n >= 0 && filled < size - 1 &&
	       (n = pin_io_read_some(fd, buf + filled, size - 1 - filled)) > 0)
		filled += (size_t)n;
	pin_io_close(fd);
	buf[filled] = '\0';
	return n < 0 ? n : (long)filled;
}

size_t pin_io_number(const char *path, const char *field, size_t otherwise)
{
	int fd = pin_io_open(path);
	size_t number = 0, matched = 0;
	bool found = false, ended = fd < 0;
	char text[1024];
	long n;

	while (!ended && (n = pin_io_read_some(fd, text, sizeof text)) > 0)
		for (char *p = text; p < text + n && !ended; p++) {
			if (field[matched])
				matched = *p == field[matched] ? matched + 1 : *p == *field;
			else if (*p >= '0' && *p <= '9')
				number = number * 10 + (size_t)(*p - '0'), found = true;
			else
				ended = found || (*p != ' ' && *p != '\t');
		}
	pin_io_close(fd);
	return found ? number : otherwise;
}

long pin_io_write_some(int fd, const char *buf, size_t n_bytes)
{
	long n;

	do
		n = pin_result(syscall(SYS_write, fd, buf, n_bytes));
	while (n == -EINTR);
	return n;
}

/* --- signals that write(2) sends -------------------------------------------------------- */

/* Of the kernel's signal sets. */
#define SET_BYTES (_NSIG / 8)

static void fill(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGPIPE);
	sigaddset(set, SIGXFSZ);
}

void pin_io_shield_begin(struct pin_io_shield *shield)
{
	int saved = errno;
	sigset_t of_write;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &shield->cancel_state);
	fill(&of_write);
	sigpending(&shield->pending);
	pthread_sigmask(SIG_BLOCK, &of_write, &shield->mask);
	errno = saved;
}

/* Those that were pending before are the program's. sigtimedwait() is a cancellation point. */
void pin_io_shield_end(const struct pin_io_shield *shield)
{
	static const struct timespec at_once;
	int saved = errno;
	sigset_t of_write;

	fill(&of_write);
	for (int sig = 1; sig < SIGRTMIN; sig++)
		if (sigismember(&shield->pending, sig) == 1)
			sigdelset(&of_write, sig);
	while (syscall(SYS_rt_sigtimedwait, &of_write, NULL, &at_once, SET_BYTES) > 0)
		;
	pthread_sigmask(SIG_SETMASK, &shield->mask, NULL);
	pthread_setcancelstate(shield->cancel_state, NULL);
	errno = saved;
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

int pin_io_write_line(int fd, const char *line, size_t n_bytes)
{
	int error = look_if_ready(fd);
	struct pin_io_shield shield;
	long n;

	if (error)
		return error;
	pin_io_shield_begin(&shield);
	n = pin_io_write_some(fd, line, n_bytes);
	pin_io_shield_end(&shield);
	return n < 0 ? (int)n : 0;
}

int pin_io_write(int fd, const char *buf, size_t n_bytes)
{
	long n = 0;

	for (; n_bytes && n >= 0; n_bytes -= n > 0 ? (size_t)n : 0) {
		n = pin_io_write_some(fd, buf, n_bytes);
		buf += n > 0 ? n : 0;
	}
	return n < 0 ? (int)n : 0;
}

/* --- standard error -------------------------------------------------------------------- */

#define MIN_COPY 100

struct pin_io_stream pin_io_standard_error = {.fd = STDERR_FILENO, .copy = -1};

void pin_io_stream_keep(struct pin_io_stream *stream)
{
	struct stat info;

	if (!stream->kept && !pin_result(fstat(stream->fd, &info))) {
		stream->device = info.st_dev;
		stream->file = info.st_ino;
	}
	stream->kept = true;
}

void pin_io_stream_copy(struct pin_io_stream *stream)
{
	pin_io_stream_keep(stream);
	stream->copy = (int)pin_result(
		syscall(SYS_fcntl, stream->fd, F_DUPFD_CLOEXEC, MIN_COPY));
}

static bool refers_to(const struct pin_io_stream *stream, int fd)
{
	struct stat info;

	return fd >= 0 && !pin_result(fstat(fd, &info)) && info.st_dev == stream->device &&
	       info.st_ino == stream->file;
}

/*
 * Checks both: some programs close all descriptors, and then open files that get these
 * numbers.
 */
int pin_io_stream_fd(const struct pin_io_stream *stream)
{
	if (refers_to(stream, stream->copy))
		return stream->copy;
	return refers_to(stream, stream->fd) ? stream->fd : -1;
}
