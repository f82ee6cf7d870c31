/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * exit() comes to the destructor (init.c); everything here may be called in a signal
 * handler or a child of vfork(). libc's own calls of _exit(), as in posix_spawn(),
 * do not come by.
 *
 * A handler of ours stands where the default disposition of a fatal signal was, and
 * then lets the default happen: so it is the default, as far as the program can see.
 * sigaction() and both kinds of signal() put ours in the place of SIG_DFL, and say SIG_DFL of
 * ours. That is needed, and not only tidy: Open MPI complains of a SIGSEGV and Python forgets
 * Ctrl-C when the disposition is not SIG_DFL, and handlers that clean up, set SIG_DFL and raise
 * the signal again, as shells and Open MPI have, come to the report in the end.
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

#define STACK ((size_t)64 * PIN_KIB)

static const int fatal[] = {PIN_FATAL_SIGNALS};

static void report_at_once(void)
{
	static const struct pin_occasion occasion = {
		.name = "at _exit", .careful = true, .last = true};

	if (PIN_UNLIKELY(pin_report_wanted))
		pin_report_due(&occasion);
}

PIN_EXPORT void _exit(int status)
{
	report_at_once();
	for (;;)
		PIN_NEXT(_exit)(status);
}

PIN_EXPORT void _Exit(int status)
{
	report_at_once();
	for (;;)
		PIN_NEXT(_Exit)(status);
}

static void at_quick_end(void)
{
	static const struct pin_occasion occasion = {
		.name = "at exit", .careful = true, .last = true};

	pin_report_due(&occasion);
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
 * Sent again with all that came with it, the signal ends the process when the handler
 * returns and no longer masks it: on the same stack, for the core dump, as it would
 * have without us. A sandbox may forbid to send what came with it.
 */
static void end_by(int sig, siginfo_t *info)
{
	static const struct sigaction by_default; /* SIG_DFL is 0 */

	PIN_NEXT(sigaction)(sig, &by_default, NULL);
	if (syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), sig, info))
		raise(sig);
}

/* The first process of a container goes on: the kernel ignores the default there. */
static bool ends_process(int sig)
{
	return is_crash(sig) || getpid() != 1;
}

static void on_fatal(int sig, siginfo_t *info, void *context)
{
	char name[24];
	struct pin_occasion occasion = {.name = name,
					.careful = true,
					.last = ends_process(sig),
					.crash = is_crash(sig)};
	int saved = errno;

	(void)context;
	pin_format(name, sizeof name, "on SIG%s", sigabbrev_np(sig));
	pin_report_due(&occasion);
	end_by(sig, info);
	errno = saved;
}

/* With all signals masked: another that ends the process shall wait for the report. */
static struct sigaction own_action(void)
{
	struct sigaction action = {.sa_sigaction = on_fatal,
				   .sa_flags = SA_SIGINFO | SA_ONSTACK};

	sigfillset(&action.sa_mask);
	return action;
}

static bool is_own(const struct sigaction *action)
{
	return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == on_fatal;
}

static bool takes(int sig)
{
	return PIN_UNLIKELY(pin_report_wanted) && is_fatal(sig);
}

static int set_action(int sig, const struct sigaction *action, struct sigaction *before)
{
	struct sigaction own = own_action();
	int failed;

	if (action && action->sa_handler == SIG_DFL)
		action = &own;
	failed = PIN_NEXT(sigaction)(sig, action, before);
	if (!failed && before && is_own(before))
		*before = (struct sigaction){.sa_handler = SIG_DFL};
	return failed;
}

PIN_EXPORT int sigaction(int sig, const struct sigaction *action, struct sigaction *before)
{
	return takes(sig) ? set_action(sig, action, before)
			  : PIN_NEXT(sigaction)(sig, action, before);
}

static sighandler_t set_default(int sig)
{
	static const struct sigaction by_default;
	struct sigaction before;

	return set_action(sig, &by_default, &before) ? SIG_ERR : before.sa_handler;
}

typedef sighandler_t set_handler(int sig, sighandler_t handler);

static sighandler_t change(int sig, sighandler_t handler, set_handler *next)
{
	sighandler_t before;

	if (!takes(sig))
		return next(sig, handler);
	if (handler == SIG_DFL)
		return set_default(sig);
	before = next(sig, handler);
	return before == (sighandler_t)(void *)on_fatal ? SIG_DFL : before;
}

PIN_EXPORT sighandler_t signal(int sig, sighandler_t handler)
{
	return change(sig, handler, PIN_NEXT(signal));
}

PIN_EXPORT sighandler_t sysv_signal(int sig, sighandler_t handler)
{
	return change(sig, handler, PIN_NEXT(sysv_signal));
}

/* What programs in strictly standard C call by the name of signal(). */
PIN_EXPORT set_handler __sysv_signal;

sighandler_t __sysv_signal(int sig, sighandler_t handler)
{
	return change(sig, handler, PIN_NEXT(sysv_signal));
}

/*
 * A stack for the signal that says the main thread's is used up. Other threads have
 * none, unless the program gives them one. The pages below stay unreadable.
 */
static void provide_stack(void)
{
	stack_t stack = {.ss_size = STACK};
	stack_t before;
	char *memory;

	if (sigaltstack(NULL, &before) || !(before.ss_flags & SS_DISABLE))
		return;
	memory = pin_os_reserve(2 * STACK);
	if (!memory || pin_os_commit(memory + STACK, STACK))
		return;
	stack.ss_sp = memory + STACK;
	sigaltstack(&stack, NULL);
}

static void take_over(int sig)
{
	struct sigaction before, own = own_action();

	if (!PIN_NEXT(sigaction)(sig, NULL, &before) && before.sa_handler == SIG_DFL)
		PIN_NEXT(sigaction)(sig, &own, NULL);
}

void pin_ending_init(void)
{
	if (!pin_report_wanted)
		return;
	at_quick_exit(at_quick_end);
	provide_stack();
	for (size_t i = 0; i < PIN_ARRAY_SIZE(fatal); i++)
		take_over(fatal[i]);
}
