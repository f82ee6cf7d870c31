/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "preload/report/report-file.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "preload/report/rank.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

char pin_report_directory[PATH_MAX];

void pin_report_file_init(void)
{
	if (getcwd(pin_report_directory, PATH_MAX - 1))
		strcat(pin_report_directory, "/");
}

/* What a letter behind a per cent sign stands for; 0 if that is nothing. */
static size_t expand_letter(char letter, char *out, size_t size)
{
	switch (letter) {
	case 'h':
		return gethostname(out, size) ? 0 : strlen(out);
	case 'p':
		return pin_format(out, size, "%d", getpid());
	case 'r':
		return pin_format(out, size, "%s", pin_place_text(PIN_RANK) ?: "none");
	default:
		return letter == '%' ? pin_format(out, size, "%%") : 0;
	}
}

const char *pin_report_file_suffix(const char *path)
{
	size_t n = strlen(path), suffix = sizeof ".json" - 1;

	return path + n - (n > suffix && !strcmp(path + n - suffix, ".json") ? suffix : 0);
}

/* Puts a number before the suffix, but for the first. */
static size_t add_number(char *out, size_t size, const char *path, long number)
{
	const char *suffix = pin_report_file_suffix(path);
	size_t n = pin_format(out, (size_t)(suffix - path) + 1, "%s", path);

	if (number > 1)
		n += pin_format(out + n, size - n, ".%ld", number);
	return n + pin_format(out + n, size - n, "%s", suffix);
}

static int try_path(const char *path)
{
	const char *slash = strrchr(path, '/');
	static char parent[PATH_MAX];
	struct stat info;

	if (!lstat(path, &info) && !S_ISREG(info.st_mode))
		return -EMEDIUMTYPE;
	pin_format(parent, slash ? (size_t)(slash - path) + 2 : 2, "%s", slash ? path : ".");
	return faccessat(AT_FDCWD, parent, W_OK | X_OK, AT_EACCESS) ? -errno : 0;
}

int pin_report_file_find(struct pin_report_file *file, const char *pattern, bool of_child)
{
	bool is_own = !of_child || strstr(pattern, "%p");
	size_t n = 0;

	if (pattern[0] != '/' && !strcmp(pattern, pin_options.report))
		n = pin_format(file->path, sizeof file->path, "%s", pin_report_directory);
	for (; *pattern && n + 1 < sizeof file->path; pattern++) {
		char *end = file->path + n;
		size_t room = sizeof file->path - n;
		size_t more = *pattern == '%' ? expand_letter(*++pattern, end, room)
					      : pin_format(end, room, "%c", *pattern);

		if (!more)
			return -EINVAL;
		n += more;
	}
	if (!*pattern && !is_own) {
		strcpy(file->name, file->path);
		n = add_number(file->path, sizeof file->path, file->name, getpid());
	}
	return *pattern || n + 1 >= sizeof file->path ? -ENAMETOOLONG : try_path(file->path);
}

/* Whether another process has written the file that has this name after the time. */
static bool is_of_another(const char *name, uint64_t since)
{
	struct stat info;

	return !lstat(name, &info) && S_ISREG(info.st_mode) &&
	       (uint64_t)info.st_mtim.tv_sec * 1000000000 + (uint64_t)info.st_mtim.tv_nsec >
		       since;
}

/* No reader may find half a report. A file that has the temporary name is removed: it may be a
 * link. */
int pin_report_file_open(struct pin_report_file *file)
{
	pin_format(file->temporary, sizeof file->temporary, "%s.%d.part", file->path, getpid());
	pin_format(file->aside, sizeof file->aside, "%s.%d.old", file->path, getpid());
	unlink(file->temporary);
	file->fd = open(file->temporary,
			O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
			0666);
	return file->fd < 0 ? -errno : 0;
}

/*
 * Takes an older report out of the way. If another process of the family has written it, or
 * has replaced it meanwhile, it gets the next name that is free.
 */
static int remove_older(struct pin_report_file *file, long number, uint64_t family)
{
	if (rename(file->name, file->aside))
		return errno == ENOENT ? 0 : -errno;
	if (is_of_another(file->aside, family)) {
		do
			add_number(file->name, sizeof file->name, file->path, ++number);
		while (link(file->aside, file->name) && errno == EEXIST &&
		       is_of_another(file->name, family));
		rename(file->aside, file->name); /* an older one; or there are no links */
	}
	unlink(file->aside);
	return 0;
}

/*
 * A link is made only where there is nothing, so that of two processes that end at once none
 * replaces the other's. Some file systems have none.
 */
static int give_name(struct pin_report_file *file, const struct pin_report_claim *claim)
{
	for (long number = claim->is_beside ? 2 : 1;;) {
		int error;

		add_number(file->name, sizeof file->name, file->path, number);
		if (!link(file->temporary, file->name))
			return unlink(file->temporary) ? -errno : 0;
		error = errno;
		if (is_of_another(file->name, number == 1 ? claim->program : claim->family))
			number++;
		else if (error != EEXIST)
			return rename(file->temporary, file->name) ? -errno : 0;
		else if ((error = remove_older(file, number, claim->family)))
			return error;
	}
}

/* A file system's clock may be coarse, or that of a server: the file has the process's time. */
int pin_report_file_close(struct pin_report_file *file, int error,
			  const struct pin_report_claim *claim)
{
	struct timespec now[2];

	clock_gettime(CLOCK_REALTIME, &now[0]);
	now[1] = now[0];
	futimens(file->fd, now);
	if (close(file->fd) && !error)
		error = -errno;
	if (!error && claim)
		error = give_name(file, claim);
	else if (!error && rename(file->temporary, file->path))
		error = -errno;
	if (error)
		unlink(file->temporary);
	return error;
}
