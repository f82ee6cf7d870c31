/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIN_COPY 100

struct pin_stream pin_standard_error = {.fd = STDERR_FILENO, .copy = -1};

void pin_stream_keep(struct pin_stream *stream)
{
	struct stat info;

	if (!stream->kept && !pin_result(fstat(stream->fd, &info))) {
		stream->device = info.st_dev;
		stream->file = info.st_ino;
	}
	stream->kept = true;
}

void pin_stream_copy(struct pin_stream *stream)
{
	pin_stream_keep(stream);
	stream->copy = (int)pin_result(syscall(SYS_fcntl, stream->fd, F_DUPFD_CLOEXEC, MIN_COPY));
}

static bool refers_to(const struct pin_stream *stream, int fd)
{
	struct stat info;

	return fd >= 0 && !pin_result(fstat(fd, &info)) && info.st_dev == stream->device &&
	       info.st_ino == stream->file;
}

/*
 * Checks both: some programs close all descriptors, and then open files that get these
 * numbers.
 */
int pin_stream_fd(const struct pin_stream *stream)
{
	if (refers_to(stream, stream->copy))
		return stream->copy;
	return refers_to(stream, stream->fd) ? stream->fd : -1;
}
