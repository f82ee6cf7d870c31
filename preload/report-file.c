/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report-file.h"
#include "allocator/log.h"
#include "preload/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int expand(const char *path, char *out, size_t size)
{
	const char *rank = pin_report_rank();
	size_t n = 0;

	for (; *path && n + 1 < size; path++) {
		char host[HOST_NAME_MAX + 1] = "";

		if (path[0] != '%' || !path[1]) {
			out[n++] = *path;
			continue;
		}
		path++;
		gethostname(host, sizeof host - 1);
		if (*path == 'h')
			n += pin_format(out + n, size - n, "%s", host);
		else if (*path == 'p')
			n += pin_format(out + n, size - n, "%d", getpid());
		else if (*path == 'r')
			n += pin_format(out + n, size - n, "%s", rank ? rank : "none");
		else
			n += pin_format(out + n, size - n, "%%%c", *path);
	}
	out[n] = '\0';
	return *path ? -ENAMETOOLONG : 0;
}

int pin_draft_expand(struct pin_draft *draft, const char *path)
{
	return expand(path, draft->path, sizeof draft->path);
}

static bool is_special(const char *path)
{
	struct stat status;

	return !stat(path, &status) && !S_ISREG(status.st_mode);
}

/*
 * A pipe, a terminal or /dev/null is written to; renaming would replace it. Opening a
 * pipe that nobody reads waits for ever, unless it is told not to.
 */
static int open_special(const char *path, bool hurried)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | (hurried ? O_NONBLOCK : 0));

	if (fd < 0)
		return -errno;
	if (hurried)
		fcntl(fd, F_SETFL, O_WRONLY);
	return fd;
}

/* Anew, so that a link somebody has put there is not followed. */
static void name_anew(struct pin_draft *draft, const char *suffix)
{
	pin_format(draft->name, sizeof draft->name, "%s.%d.%s", draft->path, getpid(), suffix);
	unlink(draft->name);
}

/*
 * Under another name first: nobody may find half a report. Without its name the draft
 * of another thread cannot replace the report any more.
 */
static int open_regular(struct pin_draft *draft, bool apart)
{
	int fd;

	name_anew(draft, "part");
	if (apart)
		name_anew(draft, "last.part");
	fd = open(draft->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	return fd < 0 ? -errno : fd;
}

int pin_draft_open(struct pin_draft *draft, const char *path, bool hurried, bool apart)
{
	int error = pin_draft_expand(draft, path);

	if (error)
		return error;
	draft->special = is_special(draft->path);
	draft->fd = draft->special ? open_special(draft->path, hurried)
				   : open_regular(draft, apart);
	return draft->fd < 0 ? draft->fd : 0;
}

int pin_draft_close(struct pin_draft *draft, int error)
{
	if (close(draft->fd) && !error)
		error = -errno;
	if (draft->special)
		return error;
	if (!error && rename(draft->name, draft->path))
		error = -errno;
	if (error)
		unlink(draft->name);
	return error;
}
