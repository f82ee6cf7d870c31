/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The exec family, which ends a program without exit(): first the report is written. Programs
 * call them in signal handlers and in children of vfork(), so they must stay async-signal-safe
 * and use no memory but the stack.
 */
#include <config.h>

#include "preload/next.h"
#include "preload/report/report.h"

#include <alloca.h>
#include <stdarg.h>
#include <unistd.h>

static void report_before_exec(void)
{
	static const struct pin_report_trigger before_exec = {
		.name = "before exec", .signal_safe = true, .before_exec = true};

	if (PIN_UNLIKELY(pin_report_wanted))
		pin_report_write_if_due(&before_exec);
}

/* Shells try one directory of PATH after another, which must not write a report each. */
static void report_if_executable_exists(const char *path)
{
	if (PIN_UNLIKELY(pin_report_wanted) && !access(path, F_OK))
		report_before_exec();
}

PIN_EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
	report_if_executable_exists(path);
	return PIN_NEXT(execve)(path, argv, envp);
}

PIN_EXPORT int execv(const char *path, char *const argv[])
{
	report_if_executable_exists(path);
	return PIN_NEXT(execv)(path, argv);
}

PIN_EXPORT int execvp(const char *file, char *const argv[])
{
	report_before_exec();
	return PIN_NEXT(execvp)(file, argv);
}

PIN_EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
	report_before_exec();
	return PIN_NEXT(execvpe)(file, argv, envp);
}

PIN_EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
	report_before_exec();
	return PIN_NEXT(fexecve)(fd, argv, envp);
}

PIN_EXPORT int execveat(int dirfd, const char *path, char *const argv[], char *const envp[],
			int flags)
{
	report_before_exec();
	if (!PIN_NEXT(execveat)) /* before glibc 2.34 */
		return (int)syscall(SYS_execveat, dirfd, path, argv, envp, flags);
	return PIN_NEXT(execveat)(dirfd, path, argv, envp, flags);
}

/* The number of arguments before the NULL, with the first, which is not in the list. */
static size_t count_arguments(va_list list)
{
	size_t n = 1;

	while (va_arg(list, char *))
		n++;
	return n;
}

/*
 * Declares argv, on the caller's stack, and leaves `list` behind the NULL. A macro, because the
 * caller of a function that reads a va_list must not go on with it.
 */
#define GATHER(argv, first, list)                 \
	char **argv;                              \
	size_t argc;                              \
                                                  \
	va_start(list, first);                    \
	argc = count_arguments(list);             \
	va_end(list);                             \
	argv = alloca((argc + 1) * sizeof *argv); \
	argv[0] = (char *)first;                  \
	va_start(list, first);                    \
	for (size_t i = 1; i <= argc; i++)        \
		argv[i] = va_arg(list, char *);

PIN_EXPORT int execl(const char *path, const char *arg, ...)
{
	va_list list;

	GATHER(argv, arg, list)
	va_end(list);
	report_if_executable_exists(path);
	return PIN_NEXT(execv)(path, argv);
}

PIN_EXPORT int execlp(const char *file, const char *arg, ...)
{
	va_list list;

	GATHER(argv, arg, list)
	va_end(list);
	report_before_exec();
	return PIN_NEXT(execvp)(file, argv);
}

PIN_EXPORT int execle(const char *path, const char *arg, ...)
{
	char *const *envp;
	va_list list;

	GATHER(argv, arg, list)
	envp = va_arg(list, char *const *);
	va_end(list);
	report_if_executable_exists(path);
	return PIN_NEXT(execve)(path, argv, envp);
}
