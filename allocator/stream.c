/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPIES_FROM 100

struct pin_stream pin_standard_error = {.fd = STDERR_FILENO, .copy = -1};

void pin_stream_keep(struct pin_stream *stream)
{
	int saved = errno;
	struct stat info;

	if (!stream->kept && !fstat(stream->fd, &info)) {
		stream->device = info.st_dev;
		stream->file = info.st_ino;
	}
	stream->kept = true;
	errno = saved;
}

void pin_stream_copy(struct pin_stream *stream)
{
	int saved = errno;

	pin_stream_keep(stream);
	stream->copy = fcntl(stream->fd, F_DUPFD_CLOEXEC, COPIES_FROM);
	errno = saved;
}

static bool is_there(const struct pin_stream *stream, int fd)
{
	int saved = errno;
	struct stat info;
	bool there = fd >= 0 && !fstat(fd, &info) && info.st_dev == stream->device &&
		     info.st_ino == stream->file;

	errno = saved;
	return there;
}

/* Some programs close all descriptors there are, and open files in the places of both. */
int pin_stream_fd(const struct pin_stream *stream)
{
	if (is_there(stream, stream->copy))
		return stream->copy;
	return is_there(stream, stream->fd) ? stream->fd : -1;
}
