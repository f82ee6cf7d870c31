/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/file.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "preload/report/rank.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Replaces %h, %p and %r. */
static int expand_path(const char *path, char *out, size_t size)
{
	const char *rank = pin_rank();
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

static int descriptor_number(const char *text)
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

/* A link in procfs leads to an open file, whatever its text says. */
static bool is_link_of_procfs(const char *path)
{
	struct stat link, proc;

	return !lstat(path, &link) && S_ISLNK(link.st_mode) && !stat("/proc", &proc) &&
	       link.st_dev == proc.st_dev;
}

/*
 * The descriptor of this process that a path stands for, or -1. One that is closed is found
 * only by its names in these directories.
 */
static int descriptor_at(const char *path)
{
	static const char *const directories[] = {"/proc/self/fd/", "/dev/fd/"};
	const char *slash = strrchr(path, '/');
	int fd = slash ? descriptor_number(slash + 1) : -1;

	if (fd < 0)
		return -1;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(directories); i++)
		if (!strncmp(path, directories[i], (size_t)(slash + 1 - path)) &&
		    !directories[i][slash + 1 - path])
			return fd;
	return is_link_of_procfs(path) && is_same_file(path, fd) ? fd : -1;
}

/* Sets the target to where its link, of n bytes, leads: from its directory, if relative. */
static int resolve_link(struct pin_report_file *file, size_t n)
{
	const char *slash = strrchr(file->target, '/');
	size_t kept = slash && file->link[0] != '/' ? (size_t)(slash + 1 - file->target) : 0;

	if (kept + n >= sizeof file->target)
		return -ENAMETOOLONG;
	memcpy(file->target + kept, file->link, n);
	file->target[kept + n] = '\0';
	return 0;
}

/* The directory that a path without a slash at its end is in. Returns a descriptor or -errno.
 */
static int open_directory_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	char directory[PATH_MAX] = ".";
	int fd;

	if (slash)
		pin_format(directory, (size_t)(slash - path) + 2, "%s", path);
	fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/*
 * In a directory like /tmp anybody can put a link where another user's report is to go. This is
 * the kernel's own rule (fs.protected_symlinks), applied to the link that is read: the one of
 * that name may be another at each look.
 */
static bool may_follow(const struct stat *directory, const struct stat *link)
{
	const mode_t shared = S_ISVTX | S_IWOTH;

	return (directory->st_mode & shared) != shared || link->st_uid == geteuid() ||
	       link->st_uid == directory->st_uid;
}

/* Sets file->link. Returns its length, 0 if the name is that of no link, or -errno. */
static ssize_t read_link_at(struct pin_report_file *file, int directory)
{
	const char *slash = strrchr(file->target, '/');
	int fd = openat(directory, slash ? slash + 1 : file->target,
			O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat parent, info;
	ssize_t n = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(directory, &parent) || fstat(fd, &info))
		n = -errno;
	else if (S_ISLNK(info.st_mode) && !may_follow(&parent, &info))
		n = -EACCES;
	else if (S_ISLNK(info.st_mode) &&
		 (n = readlinkat(fd, "", file->link, sizeof file->link)) < 0)
		n = -errno;
	close(fd);
	return n;
}

static ssize_t read_link(struct pin_report_file *file)
{
	int directory = open_directory_of(file->target);
	ssize_t n;

	if (directory < 0)
		return directory == -ENOENT ? 0 : directory;
	n = read_link_at(file, directory);
	close(directory);
	return n;
}

/* Follows one link. Returns 1 if there may be more, 0 if there are none, or -errno. */
static int follow_link(struct pin_report_file *file)
{
	ssize_t n;
	int error;

	file->stream = descriptor_at(file->target);
	file->in_place = is_link_of_procfs(file->target);
	if (file->stream >= 0 || file->in_place)
		return 0;
	n = read_link(file);
	if (n <= 0)
		return (int)n;
	error = resolve_link(file, (size_t)n);
	return error ? error : 1;
}

/* The kernel follows no more. */
#define MOST_LINKS 40

int pin_report_file_find(struct pin_report_file *file, const char *path)
{
	int more = expand_path(path, file->path, sizeof file->path);

	file->in_place = false;
	file->stream = strcmp(path, "stderr") ? -1 : STDERR_FILENO;
	if (more || file->stream >= 0)
		return more;
	strcpy(file->target, file->path);
	more = 1;
	for (int links = 0; more > 0 && links <= MOST_LINKS; links++)
		more = follow_link(file);
	return more > 0 ? -ELOOP : more;
}

/* As S_IFREG; 0 if there is nothing. */
static mode_t kind_of(const char *path)
{
	struct stat status;

	return stat(path, &status) ? 0 : status.st_mode & S_IFMT;
}

static bool is_special(const char *path)
{
	mode_t kind = kind_of(path);

	return kind && kind != S_IFREG;
}

/* The reader of a pipe may come a little later. */
#define NAP_MS 10
#define NAPS   200

/*
 * A pipe, a terminal or /dev/null is written to directly, because renaming would replace it. A
 * blocking open() of a pipe that has no reader would never return.
 */
static int open_special(const char *path)
{
	int flags = O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
	bool pipe = kind_of(path) == S_IFIFO;
	int fd = open(path, flags);

	for (int i = 0; fd < 0 && errno == ENXIO && pipe && i < NAPS; i++) {
		pin_os_sleep_ms(NAP_MS);
		fd = open(path, flags);
	}
	if (fd < 0)
		return errno == ENXIO && pipe ? -EPIPE : -errno;
	return fd;
}

/* Nobody may find half a report, so it gets its name when it is whole. */
static int open_regular(struct pin_report_file *file)
{
	int fd, error;

	/* Removes what has that name, so that a link somebody has put there is not followed. */
	pin_format(file->temporary, sizeof file->temporary, "%s.%d.part", file->target,
		   getpid());
	unlink(file->temporary);
	fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	error = fd < 0 ? errno : 0;
	/* If the directory takes no new file. Then somebody may find the report half written.
	 */
	if (error == EACCES || error == EPERM || error == EROFS) {
		file->in_place = true;
		fd = open(file->target, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
	}
	return fd < 0 ? -error : fd;
}

bool pin_report_file_is_regular(const struct pin_report_file *file)
{
	return file->stream < 0 && !file->in_place && !is_special(file->target);
}

int pin_report_file_open(struct pin_report_file *file)
{
	file->in_place = file->in_place || is_special(file->target);
	file->fd = file->in_place ? open_special(file->target) : open_regular(file);
	return file->fd < 0 ? file->fd : 0;
}

int pin_report_file_close(struct pin_report_file *file, int error)
{
	if (close(file->fd) && !error)
		error = -errno;
	if (file->in_place)
		return error;
	if (!error && rename(file->temporary, file->target))
		error = -errno;
	if (error)
		unlink(file->temporary);
	return error;
}
