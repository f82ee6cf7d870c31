/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * exit() runs the destructor (init.c). Everything here may be called in a signal handler or in
 * a child of vfork(). When libc itself calls _exit(), as in posix_spawn(), nothing here is
 * called.
 *
 * Our handler takes the place of SIG_DFL for fatal signals, writes the report and then lets the
 * default happen, so that the program sees no difference: sigaction() and both kinds of
 * signal() install our handler where the program asks for SIG_DFL, and return SIG_DFL for our
 * handler. This is necessary: Open MPI complains of SIGSEGV, and Python ignores Ctrl-C, if the
 * disposition is not SIG_DFL; and a handler that cleans up, sets SIG_DFL and raises the signal
 * again, as shells and Open MPI have, must lead to the report in the end.
 */
#include <config.h>

#include "preload/report/ending.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "preload/next.h"
#include "preload/report/report.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)64 * PIN_KIB)

static const int fatal[] = {PIN_FATAL_SIGNALS};

static void report_at__exit(void)
{
	static const struct pin_report_trigger at__exit = {
		.name = "at _exit", .signal_safe = true, .last = true};

	if (PIN_UNLIKELY(pin_report_wanted))
		pin_report_write_if_due(&at__exit);
}

PIN_EXPORT void _exit(int status)
{
	report_at__exit();
	for (;;)
		PIN_NEXT(_exit)(status);
}

PIN_EXPORT void _Exit(int status)
{
	report_at__exit();
	for (;;)
		PIN_NEXT(_Exit)(status);
}

static void report_at_quick_exit(void)
{
	static const struct pin_report_trigger at_exit = {
		.name = "at exit", .signal_safe = true, .last = true};

	pin_report_write_if_due(&at_exit);
}

static bool is_fatal(int sig)
{
	bool found = false;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(fatal); i++)
		found |= fatal[i] == sig;
	return found;
}

static bool is_crash(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL ||
	       sig == SIGABRT;
}

/*
 * Sends the signal again with its siginfo. It ends the process when the handler returns and no
 * longer masks it: on the original stack, so that the core dump is the same as without us. A
 * sandbox may forbid to send the siginfo.
 */
static void raise_by_default(int sig, siginfo_t *info)
{
	static const struct sigaction by_default; /* SIG_DFL is 0 */

	PIN_NEXT(sigaction)(sig, &by_default, NULL);
	if (syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), sig, info))
		raise(sig);
}

/* Process 1 of a container survives: the kernel ignores the default action there. */
static bool ends_process(int sig)
{
	return is_crash(sig) || getpid() != 1;
}

static void report_on_signal(int sig, siginfo_t *info, void *context)
{
	char name[24];
	struct pin_report_trigger on_signal = {.name = name,
					       .signal_safe = true,
					       .last = ends_process(sig),
					       .crash = is_crash(sig)};
	int saved = errno;

	(void)context;
	pin_format(name, sizeof name, "on SIG%s", sigabbrev_np(sig));
	pin_report_write_if_due(&on_signal);
	raise_by_default(sig, info);
	errno = saved;
}

/* Masks all signals, so that another fatal one waits until the report is written. */
static struct sigaction our_action(void)
{
	struct sigaction action = {.sa_sigaction = report_on_signal,
				   .sa_flags = SA_SIGINFO | SA_ONSTACK};

	sigfillset(&action.sa_mask);
	return action;
}

static bool is_our_action(const struct sigaction *action)
{
	return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == report_on_signal;
}

static bool is_handled(int sig)
{
	return PIN_UNLIKELY(pin_report_wanted) && is_fatal(sig);
}

static int set_action(int sig, const struct sigaction *action, struct sigaction *before)
{
	struct sigaction ours = our_action();
	int failed;

	if (action && action->sa_handler == SIG_DFL)
		action = &ours;
	failed = PIN_NEXT(sigaction)(sig, action, before);
	if (!failed && before && is_our_action(before))
		*before = (struct sigaction){.sa_handler = SIG_DFL};
	return failed;
}

PIN_EXPORT int sigaction(int sig, const struct sigaction *action, struct sigaction *before)
{
	return is_handled(sig) ? set_action(sig, action, before)
			       : PIN_NEXT(sigaction)(sig, action, before);
}

static sighandler_t set_default(int sig)
{
	static const struct sigaction by_default;
	struct sigaction before;

	return set_action(sig, &by_default, &before) ? SIG_ERR : before.sa_handler;
}

typedef sighandler_t set_handler(int sig, sighandler_t handler);

static sighandler_t change_handler(int sig, sighandler_t handler, set_handler *next)
{
	sighandler_t before;

	if (!is_handled(sig))
		return next(sig, handler);
	if (handler == SIG_DFL)
		return set_default(sig);
	before = next(sig, handler);
	return before == (sighandler_t)(void *)report_on_signal ? SIG_DFL : before;
}

PIN_EXPORT sighandler_t signal(int sig, sighandler_t handler)
{
	return change_handler(sig, handler, PIN_NEXT(signal));
}

PIN_EXPORT sighandler_t sysv_signal(int sig, sighandler_t handler)
{
	return change_handler(sig, handler, PIN_NEXT(sysv_signal));
}

/* What signal() stands for in programs compiled as strict standard C. */
PIN_EXPORT set_handler __sysv_signal;

sighandler_t __sysv_signal(int sig, sighandler_t handler)
{
	return change_handler(sig, handler, PIN_NEXT(sysv_signal));
}

/*
 * A stack to handle the overflow of the main thread's stack. Other threads have none, unless
 * the program gives them one. The pages below it stay unreadable.
 */
static void provide_signal_stack(void)
{
	stack_t stack = {.ss_size = STACK_BYTES};
	stack_t before;
	char *memory;

	if (sigaltstack(NULL, &before) || !(before.ss_flags & SS_DISABLE))
		return;
	memory = pin_os_reserve(2 * STACK_BYTES);
	if (!memory || pin_os_commit(memory + STACK_BYTES, STACK_BYTES))
		return;
	stack.ss_sp = memory + STACK_BYTES;
	sigaltstack(&stack, NULL);
}

static void replace_default(int sig)
{
	struct sigaction before, ours = our_action();

	if (!PIN_NEXT(sigaction)(sig, NULL, &before) && before.sa_handler == SIG_DFL)
		PIN_NEXT(sigaction)(sig, &ours, NULL);
}

void pin_ending_init(void)
{
	if (!pin_report_wanted)
		return;
	at_quick_exit(report_at_quick_exit);
	provide_signal_stack();
	for (size_t i = 0; i < PIN_ARRAY_SIZE(fatal); i++)
		replace_default(fatal[i]);
}
