/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/file.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "preload/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
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

static int number_in(const char *text)
{
	size_t n = strspn(text, "0123456789");
	int number = 0;

	if (!n || n > 9 || text[n])
		return -1;
	for (; *text; text++)
		number = number * 10 + (*text - '0');
	return number;
}

static bool is_same_file(const char *path, int fd)
{
	struct stat named, opened;

	return !stat(path, &named) && !fstat(fd, &opened) && named.st_dev == opened.st_dev &&
	       named.st_ino == opened.st_ino;
}

/* A link of procfs leads to what is open, and not to where its text says. */
static bool is_of_procfs(const char *path)
{
	struct stat link, proc;

	return !lstat(path, &link) && S_ISLNK(link.st_mode) && !stat("/proc", &proc) &&
	       link.st_dev == proc.st_dev;
}

/* The descriptor of this process that a path stands for; by these names a closed one too. */
static int descriptor_at(const char *path)
{
	static const char *const directories[] = {"/proc/self/fd/", "/dev/fd/"};
	const char *slash = strrchr(path, '/');
	int fd = slash ? number_in(slash + 1) : -1;

	if (fd < 0)
		return -1;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(directories); i++)
		if (!strncmp(path, directories[i], (size_t)(slash + 1 - path)) &&
		    !directories[i][slash + 1 - path])
			return fd;
	return is_of_procfs(path) && is_same_file(path, fd) ? fd : -1;
}

/* To where the link that is `n` bytes of `name` leads, from its directory. */
static int take_link(struct pin_draft *draft, size_t n)
{
	const char *slash = strrchr(draft->file, '/');
	size_t kept = slash && draft->name[0] != '/' ? (size_t)(slash + 1 - draft->file) : 0;

	if (kept + n >= sizeof draft->file)
		return -ENAMETOOLONG;
	memcpy(draft->file + kept, draft->name, n);
	draft->file[kept + n] = '\0';
	return 0;
}

/* One link: 1 if there may be more. */
static int follow(struct pin_draft *draft)
{
	struct stat info;
	ssize_t n;
	int error;

	draft->descriptor = descriptor_at(draft->file);
	draft->special = is_of_procfs(draft->file);
	if (draft->descriptor >= 0 || draft->special)
		return 0;
	n = readlink(draft->file, draft->name, sizeof draft->name);
	if (n < 0)
		return errno == EINVAL || errno == ENOENT ? 0 : -errno;
	/* The kernel forbids to follow links of others in /tmp; and knows circles. */
	if (stat(draft->file, &info) && errno != ENOENT)
		return -errno;
	error = take_link(draft, (size_t)n);
	return error ? error : 1;
}

/* As many as the kernel follows. */
#define MOST_LINKS 40

int pin_draft_find(struct pin_draft *draft, const char *path)
{
	int more = expand(path, draft->path, sizeof draft->path);

	draft->special = false;
	draft->descriptor = strcmp(path, "stderr") ? -1 : STDERR_FILENO;
	if (more || draft->descriptor >= 0)
		return more;
	strcpy(draft->file, draft->path);
	more = 1;
	for (int links = 0; more > 0 && links <= MOST_LINKS; links++)
		more = follow(draft);
	return more > 0 ? -ELOOP : more;
}

static bool is_special(const char *path)
{
	struct stat status;

	return !stat(path, &status) && !S_ISREG(status.st_mode);
}

static bool is_pipe(const char *path)
{
	struct stat status;

	return !stat(path, &status) && S_ISFIFO(status.st_mode);
}

/* Who is to read a pipe may be a little late. */
#define NAP_MS 10
#define NAPS   200

/*
 * A pipe, a terminal or /dev/null is written to; renaming would replace it. Opening a
 * pipe that nobody reads would wait for ever.
 */
static int open_special(const char *path, bool hurried)
{
	int flags = O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
	bool pipe = is_pipe(path);
	int fd = open(path, flags);

	for (int i = 0; fd < 0 && errno == ENXIO && pipe && !hurried && i < NAPS; i++) {
		pin_os_sleep_ms(NAP_MS);
		fd = open(path, flags);
	}
	if (fd < 0)
		return errno == ENXIO && pipe ? -EPIPE : -errno;
	return fd;
}

/* Anew, so that a link somebody has put there is not followed. */
static void name_anew(struct pin_draft *draft, const char *suffix)
{
	pin_format(draft->name, sizeof draft->name, "%s.%d.%s", draft->file, getpid(), suffix);
	unlink(draft->name);
}

/* Where the directory takes no new file: then it may be found half written. */
static int open_in_place(struct pin_draft *draft)
{
	draft->special = true;
	return open(draft->file, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
}

/*
 * Under another name first: nobody may find half a report. Without its name the draft
 * of another thread cannot replace the report any more.
 */
static int open_regular(struct pin_draft *draft, bool apart)
{
	int fd, error;

	name_anew(draft, "part");
	if (apart)
		name_anew(draft, "last.part");
	fd = open(draft->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	error = fd < 0 ? errno : 0;
	if (error == EACCES || error == EPERM || error == EROFS)
		fd = open_in_place(draft);
	return fd < 0 ? -error : fd;
}

int pin_draft_open(struct pin_draft *draft, bool hurried, bool apart)
{
	draft->special = draft->special || is_special(draft->file);
	draft->fd = draft->special ? open_special(draft->file, hurried)
				   : open_regular(draft, apart);
	return draft->fd < 0 ? draft->fd : 0;
}

int pin_draft_close(struct pin_draft *draft, int error)
{
	if (close(draft->fd) && !error)
		error = -errno;
	if (draft->special)
		return error;
	if (!error && rename(draft->name, draft->file))
		error = -errno;
	if (error)
		unlink(draft->name);
	return error;
}
