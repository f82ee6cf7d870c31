/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stack behind a fatal error, which tells whose call it was. The only user of
 * libunwind, which is loaded when it is needed: linked in, every process under the
 * preload would pay for it at its start.
 */
#include <config.h>

#include "preload/backtrace.h"
#include "allocator/log.h"

#if HAVE_LIBUNWIND

#include <dlfcn.h>

#define UNW_LOCAL_ONLY
#include <libunwind.h>

#define MOST_FRAMES 32

static void say_frame(const char *code)
{
	Dl_info info;

	if (!dladdr(code, &info) || !info.dli_fname)
		pin_log_line("  at %p", (const void *)code);
	else if (info.dli_sname)
		pin_log_line("  at %s+0x%zx in %s", info.dli_sname,
			     (size_t)(code - (const char *)info.dli_saddr), info.dli_fname);
	else
		pin_log_line("  at 0x%zx in %s", (size_t)(code - (const char *)info.dli_fbase),
			     info.dli_fname);
}

void pin_backtrace_say(void)
{
	void *library = dlopen("libunwind.so.8", RTLD_LAZY);
	__typeof__(&unw_backtrace) walk;
	void *frames[MOST_FRAMES];
	int n;

	walk = library ? (__typeof__(walk))dlsym(library, "unw_backtrace") : NULL;
	n = walk ? walk(frames, MOST_FRAMES) : 0;
	/* From 2: not this function and not the one that says what is fatal. */
	for (int i = 2; i < n; i++)
		say_frame(frames[i]);
}

#else

void pin_backtrace_say(void)
{
}

#endif
