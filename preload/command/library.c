/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where this installation is, found from the path of this command, so that it can be moved, or
 * tried under DESTDIR; and what the loader of this command, which is that of the library's own
 * machine and C library, says of a program.
 */
#include <config.h>

#include "preload/command/command.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ld.so splits LD_PRELOAD at these. */
#define SEPARATORS " :"

/* The kernel follows no more interpreters of interpreters. */
#define SCRIPTS 5

/* --- the installation ------------------------------------------------------------ */

const char *cmd_own_path(void)
{
	return access("/proc/self/exe", X_OK) ? (const char *)getauxval(AT_EXECFN)
					      : "/proc/self/exe";
}

/* The directory of this command, with symbolic links followed; "." if it cannot be read. */
static void find_own(char directory[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", directory, PATH_MAX - 1);
	char *slash;

	directory[n < 0 ? 0 : n] = '\0';
	if (n < 0 && !realpath(cmd_own_path(), directory))
		*directory = '\0';
	slash = strrchr(directory, '/');
	strcpy(slash ? slash : directory, slash ? "" : ".");
}

static bool is_in(char path[PATH_MAX], const char *from, const char *way, const char *below,
		  const char *name)
{
	char whole[4 * PATH_MAX];

	snprintf(whole, sizeof whole, "%s/%s%s%s%s", from, way, below, *below ? "/" : "", name);
	if (realpath(whole, path))
		return !access(path, R_OK);
	snprintf(path, PATH_MAX, "%.*s", PATH_MAX - 1, whole);
	return false;
}

/* The way from bindir to `installed` begins with as many "../" as bindir has parts of its own.
 */
bool cmd_find(char path[PATH_MAX], const char *built, const char *installed, const char *name)
{
	char own[PATH_MAX], way[PATH_MAX] = "";
	const char *from = BINDIR;
	size_t same = 0, n = 0;

	find_own(own);
	for (size_t i = 0; from[i] && from[i] == installed[i]; i++)
		if (from[i] == '/')
			same = i + 1;
	for (const char *p = from + same; p; p = strchr(p + 1, '/'))
		n += (size_t)snprintf(way + n, sizeof way - n, "../");
	return is_in(path, own, "", built, name) ||
	       is_in(path, own, way, installed + same, name) ||
	       is_in(path, installed, "", "", name);
}

const char *cmd_library_find(char path[PATH_MAX])
{
	if (!cmd_find(path, ".libs", LIBDIR, CMD_LIBRARY_NAME))
		return "is not there or cannot be read: install it (make install)";
	return strpbrk(path, SEPARATORS) ? "LD_PRELOAD cannot name a path with a space or a "
					   "colon: install it elsewhere"
					 : NULL;
}

void cmd_library_preload(const char *library)
{
	const char *before = getenv("LD_PRELOAD");
	char *rest = cmd_strdup(before ? before : ""), *old = rest, *entry;
	char *after = cmd_realloc(NULL, strlen(library ? library : "") + strlen(old) + 2);
	char *end = stpcpy(after, library ? library : "");

	while ((entry = strsep(&rest, SEPARATORS)))
		if (*entry && strcmp(basename(entry), CMD_LIBRARY_NAME) != 0)
			end += sprintf(end, "%s%s", end > after ? ":" : "", entry);
	if (*after ? setenv("LD_PRELOAD", after, 1) : unsetenv("LD_PRELOAD"))
		cmd_no_memory();
	free(after);
	free(old);
}

/* --- a program ------------------------------------------------------------------- */

static int check_executable(const char *path)
{
	struct stat file;

	if (access(path, X_OK) || stat(path, &file))
		return -errno;
	return S_ISREG(file.st_mode) ? 0 : -EACCES;
}

int cmd_program_find(const char *command, char path[PATH_MAX])
{
	const char *at = getenv("PATH");
	int error = -ENOENT, tried;
	size_t n;

	snprintf(path, PATH_MAX, "%s", command);
	if (!*command)
		return -ENOENT;
	if (strchr(command, '/'))
		return check_executable(path);
	for (at = at ? at : "/bin:/usr/bin"; at; at = at[n] ? at + n + 1 : NULL) {
		n = strcspn(at, ":");
		snprintf(path, PATH_MAX, "%.*s/%s", n ? (int)n : 1, n ? at : ".", command);
		tried = check_executable(path);
		if (!tried)
			return 0;
		if (tried == -EACCES)
			error = tried;
	}
	return error;
}

__attribute__((format(printf, 3, 4))) static int say(struct cmd_program *program,
						     const char *cure, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(program->finding, sizeof program->finding, format, args);
	va_end(args);
	program->cure = cure;
	return 1;
}

/* What makes the kernel set AT_SECURE: then ld.so and the library ignore the environment. */
static const char *privileges(const char *path)
{
	struct stat file;

	if (stat(path, &file))
		return NULL;
	if (file.st_mode & S_ISUID && file.st_uid != getuid())
		return "set-user-ID";
	if ((file.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
	    file.st_gid != getgid())
		return "set-group-ID";
	return getuid() && getxattr(path, "security.capability", NULL, 0) > 0
		       ? "file capabilities"
		       : NULL;
}

/* This command's loader, which can be called with a program as its argument. */
static const char *own_loader(void)
{
	Dl_info loader;

	return dladdr((void *)getauxval(AT_BASE), &loader) ? loader.dli_fname : "";
}

static bool is_own_loader(const char *path)
{
	struct stat one, own;

	return !stat(path, &one) && !stat(own_loader(), &own) && one.st_dev == own.st_dev &&
	       one.st_ino == own.st_ino;
}

static void ask_loader(const void *path, int out)
{
	if (dup2(out, STDOUT_FILENO) >= 0 && dup2(out, STDERR_FILENO) >= 0)
		execl(own_loader(), own_loader(), "--list", path, NULL);
}

/* The runtimes of gcc and clang that replace malloc. */
static const char *sanitizer_in(char *list)
{
	static const char *const names[] = {
		"libasan.so",	    "libtsan.so",	"liblsan.so",	     "libhwasan.so",
		"libclang_rt.asan", "libclang_rt.tsan", "libclang_rt.hwasan"};
	char *at = NULL;

	for (size_t i = 0; !at && i < PIN_ARRAY_SIZE(names); i++)
		at = strstr(list, names[i]);
	if (at)
		at[strcspn(at, " \n")] = '\0';
	return at;
}

/* The last line of the list is the program's loader: "/ITS/PATH => /OWN/PATH (0x…)". */
static const char *other_loader_in(char *list)
{
	char arrow[PATH_MAX + 8], *at, *start;

	snprintf(arrow, sizeof arrow, " => %s (", own_loader());
	at = strstr(list, arrow);
	if (!at)
		return NULL;
	*at = '\0';
	start = strrchr(list, '\t');
	start = start ? start + 1 : list;
	return strcmp(basename(start), basename(own_loader())) ? start : NULL;
}

/* The loader crashes when it is asked about a static program at a fixed address. */
static int judge(const char *path, char *list, int status, struct cmd_program *program)
{
	const char *name;

	if (strstr(list, "statically linked") || (status > 0 && WIFSIGNALED(status)))
		return is_own_loader(path)
			       ? 0
			       : say(program, "link it dynamically",
				     "%s is statically linked, so no library is loaded into it",
				     path);
	if (status < 0 || !*list)
		return 0;
	if (status)
		return say(program, "look at it with file(1)",
			   "%s is not a program for this machine, or is damaged", path);
	if ((name = other_loader_in(list)))
		return say(program, "link it with glibc",
			   "%s is for another C library, whose loader is %s", path, name);
	if (!(name = sanitizer_in(list)))
		return 0;
	program->is_sanitized = true;
	return say(program, "build it without -fsanitize",
		   "%s has the malloc of a sanitizer (%s), and runs without this library", path,
		   name);
}

/* The path behind "#!" at the start of a file, in place; NULL if there is none. */
static char *interpreter(int fd, char line[PATH_MAX])
{
	ssize_t n = pread(fd, line, PATH_MAX - 1, 0);
	char *path;

	line[n < 0 ? 0 : n] = '\0';
	if (strncmp(line, "#!", 2) != 0)
		return NULL;
	path = line + 2 + strspn(line + 2, " \t");
	path[strcspn(path, " \t\r\n")] = '\0';
	return path;
}

static int look_at(const char *path, int scripts, struct cmd_program *program)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), error = errno;
	static char list[1 << 16];
	char line[PATH_MAX], *next = fd < 0 ? NULL : interpreter(fd, line);
	const char *secure = next ? NULL : privileges(path);

	if (fd >= 0)
		close(fd);
	/* The kernel ignores a script's own privileges, and takes its interpreter's. */
	if (next)
		return scripts ? look_at(next, scripts - 1, program) : 0;
	if (secure)
		return say(program,
			   "use a copy without them, or preload only in what it starts",
			   "%s has privileges of its own (%s), so LD_PRELOAD is ignored", path,
			   secure);
	if (fd < 0) {
		say(program, "look at it with file(1)", "%s: %s", path, strerrordesc_np(error));
		return -error;
	}
	if (strncmp(line, ELFMAG, SELFMAG) != 0) {
		say(program, "look at it with file(1)", "%s is no program", path);
		return -ENOEXEC;
	}
	return judge(path, list, cmd_try(ask_loader, path, list, sizeof list), program);
}

int cmd_program_look(const char *path, struct cmd_program *program)
{
	program->is_sanitized = false;
	return look_at(path, SCRIPTS, program);
}
