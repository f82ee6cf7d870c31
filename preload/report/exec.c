/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The exec family, by which a program ends without exit(): the report is written
 * first. All are called in signal handlers and in children of vfork(), so all stay
 * async-signal-safe and use no memory but the stack.
 */
#include <config.h>

#include "preload/next.h"
#include "preload/report/report.h"

#include <alloca.h>
#include <stdarg.h>
#include <unistd.h>

static void report(void)
{
	static const struct pin_occasion before_exec = {
		.name = "before exec", .careful = true, .step = true};

	if (PIN_UNLIKELY(pin_report_wanted))
		pin_report_due(&before_exec);
}

/* Shells try one directory of PATH after another: that is no end yet. */
static void report_if_there(const char *path)
{
	if (PIN_UNLIKELY(pin_report_wanted) && !access(path, F_OK))
		report();
}

PIN_EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
	report_if_there(path);
	return PIN_NEXT(execve)(path, argv, envp);
}

PIN_EXPORT int execv(const char *path, char *const argv[])
{
	report_if_there(path);
	return PIN_NEXT(execv)(path, argv);
}

PIN_EXPORT int execvp(const char *file, char *const argv[])
{
	report();
	return PIN_NEXT(execvp)(file, argv);
}

PIN_EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
	report();
	return PIN_NEXT(execvpe)(file, argv, envp);
}

PIN_EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
	report();
	return PIN_NEXT(fexecve)(fd, argv, envp);
}

PIN_EXPORT int execveat(int dirfd, const char *path, char *const argv[], char *const envp[],
			int flags)
{
	report();
	return PIN_NEXT(execveat)(dirfd, path, argv, envp, flags);
}

/* How many there are with the first, which is not in the list, up to the NULL. */
static size_t count(va_list list)
{
	size_t n = 1;

	while (va_arg(list, char *))
		n++;
	return n;
}

/*
 * Declares argv, of the caller's stack, and leaves `list` behind the NULL. A macro,
 * because a function that has read a va_list must not give it back.
 */
#define GATHER(argv, first, list)                 \
	char **argv;                              \
	size_t argc;                              \
                                                  \
	va_start(list, first);                    \
	argc = count(list);                       \
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
	report_if_there(path);
	return PIN_NEXT(execv)(path, argv);
}

PIN_EXPORT int execlp(const char *file, const char *arg, ...)
{
	va_list list;

	GATHER(argv, arg, list)
	va_end(list);
	report();
	return PIN_NEXT(execvp)(file, argv);
}

PIN_EXPORT int execle(const char *path, const char *arg, ...)
{
	char *const *envp;
	va_list list;

	GATHER(argv, arg, list)
	envp = va_arg(list, char *const *);
	va_end(list);
	report_if_there(path);
	return PIN_NEXT(execve)(path, argv, envp);
}
