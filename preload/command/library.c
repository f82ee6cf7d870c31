/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where this installation is, found from the path of this command, so that it can be moved, or
 * tried under DESTDIR; and what the loader of this command, which is that of the library's own
 * machine and C library, says of a program.
 */
#include <config.h>

#include "allocator/io.h"
#include "preload/command/command.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/xattr.h>

/* ld.so splits LD_PRELOAD at these. */
#define SEPARATORS " :"

/* --- the installation ------------------------------------------------------------ */

/* Without /proc, as it was executed. */
char *cmd_own_path(char path[PATH_MAX])
{
	return realpath("/proc/self/exe", path)
		       ?: realpath((const char *)getauxval(AT_EXECFN), path);
}

bool cmd_find(char path[PATH_MAX], const char *built, const char *installed, const char *name)
{
	char own[PATH_MAX], whole[3 * PATH_MAX];
	char *slash = cmd_own_path(own) ? strrchr(own, '/') : NULL;

	strcpy(slash ? slash : own, slash ? "" : ".");
	for (int i = 0; i < 2; i++) {
		snprintf(whole, sizeof whole, "%s/%s/%s", own, i ? installed : built, name);
		if (realpath(whole, path) && !access(path, R_OK))
			return true;
	}
	snprintf(path, PATH_MAX, "%.*s", PATH_MAX - 1, whole);
	return false;
}

const char *cmd_library_find(char path[PATH_MAX])
{
	if (!cmd_find(path, ".libs", WAY_TO_LIBDIR, CMD_LIBRARY_NAME))
		return "is not there or cannot be read: install it (make install)";
	return strpbrk(path, SEPARATORS) ? "LD_PRELOAD cannot name a path with a space or a "
					   "colon: install it elsewhere"
					 : NULL;
}

void cmd_library_preload(const char *library)
{
	char *rest = cmd_strdup(getenv("LD_PRELOAD") ?: ""), *old = rest, *entry;
	char *after = cmd_realloc(NULL, strlen(library ?: "") + strlen(old) + 2);
	char *end = stpcpy(after, library ?: "");

	while ((entry = strsep(&rest, SEPARATORS)))
		if (*entry && strcmp(basename(entry), CMD_LIBRARY_NAME) != 0)
			end += sprintf(end, "%s%s", end > after ? ":" : "", entry);
	if (*after ? setenv("LD_PRELOAD", after, 1) : unsetenv("LD_PRELOAD"))
		cmd_no_memory();
	free(after);
	free(old);
}

/* --- a program ------------------------------------------------------------------- */

int cmd_program_find(const char *command, char path[PATH_MAX])
{
	const char *places = strchr(command, '/') ? "" : getenv("PATH") ?: "/bin:/usr/bin";
	char *all = cmd_strdup(places), *rest = all, *one;
	struct stat file;
	int error = ENOENT;

	while (error && *command && (one = strsep(&rest, ":"))) {
		snprintf(path, PATH_MAX, "%s%s%s", one, *one ? "/" : "", command);
		error = access(path, X_OK) || stat(path, &file) ? errno
			: S_ISREG(file.st_mode)			? 0
								: EACCES;
	}
	free(all);
	return -error;
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

/* Whether the kernel sets AT_SECURE: then ld.so and the library ignore the environment. */
static bool is_privileged(const char *path)
{
	struct stat file;

	return !stat(path, &file) &&
	       ((file.st_mode & S_ISUID && file.st_uid != getuid()) ||
		((file.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
		 file.st_gid != getgid()) ||
		(getuid() && getxattr(path, "security.capability", NULL, 0) > 0));
}

/* This command's loader, which can be called with a program as its argument. */
static const char *own_loader(void)
{
	Dl_info loader;

	return dladdr((void *)getauxval(AT_BASE), &loader) ? loader.dli_fname : "";
}

/* What it would load for this path without links, the library included. */
static void ask_loader(const void *path)
{
	char library[PATH_MAX];

	cmd_library_find(library);
	cmd_library_preload(library);
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

/* The loader crashes when it is asked about a static program at a fixed address. */
static int judge(const char *path, char *list, int status, struct cmd_program *program)
{
	const char *name = sanitizer_in(list);

	program->is_sanitized = name;
	if (name)
		return say(
			program, "build it without -fsanitize",
			"%s has the malloc of a sanitizer (%s), and runs without this library",
			path, name);
	if (status == -1 || strstr(list, CMD_LIBRARY_NAME))
		return 0;
	list += strspn(list, " \t");
	list[strcspn(list, "\n")] = '\0';
	return say(
		program,
		"link it dynamically, with glibc, for this machine, and install what it lacks",
		"%s does not load the library: %s", path, *list ? list : "statically linked");
}

/* What a script's first line names: env(1) looks for its argument along PATH. */
static int look_at_interpreter(const char *script, char *line, struct cmd_program *program)
{
	char *rest = line, *name = strtok_r(line, " \t\n", &rest), path[PATH_MAX] = "";
	bool is_env = name && !strcmp(basename(name), "env");
	int error;

	while (is_env && (name = strtok_r(NULL, " \t\n", &rest)) &&
	       (*name == '-' || strchr(name, '=')))
		;
	if (!name)
		return 0;
	error = cmd_program_find(name, path);
	if (!error)
		return cmd_program_look(path, program);
	return say(program, "install it, or correct the first line of the script",
		   "%s has the interpreter %s: %s", script, name, strerrordesc_np(-error));
}

int cmd_program_look(const char *path, struct cmd_program *program)
{
	static char list[1 << 16];
	char start[4096], whole[PATH_MAX];
	long n = pin_io_read(path, start, sizeof start);

	*program = (struct cmd_program){.cure = NULL};
	if (!strncmp(start, "#!", 2)) {
		start[strcspn(start, "\n")] = '\0';
		return look_at_interpreter(path, start + 2, program);
	}
	if (is_privileged(path))
		return say(program,
			   "use a copy without them, or preload only in what it starts",
			   "%s has privileges of its own, so LD_PRELOAD is ignored", path);
	if (strncmp(start, ELFMAG, SELFMAG)) {
		say(program, "look at it with file(1)", n < 0 ? "%s: %s" : "%s is no program",
		    path, strerrordesc_np((int)-n));
		return n < 0 ? (int)n : -ENOEXEC;
	}
	return judge(path, list,
		     cmd_try(ask_loader, realpath(path, whole) ?: path, list, sizeof list),
		     program);
}
