/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Walks of the stack, by the unwinder of the compiler's own run-time library. It is
 * linked in from the archive (libgcc_eh): that copy has no frames registered in it
 * at run time, for which alone it would allocate and lock, and finds unwind tables
 * by _dl_find_object(), which does neither. So it can be called inside malloc.
 */
#include <config.h>

#include "preload/backtrace.h"
#include "allocator/log.h"

#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#if HAVE_LIBUNWIND
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#endif

#define MOST_FRAMES 32

/* Where the linker put this library: its code is between its header and _DYNAMIC. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));

struct walk {
	void **frames;
	int n, most;
};

/* Where the walk this thread is on ends at once. */
static __thread void **way_out __attribute__((tls_model("initial-exec")));

const void *__real__Unwind_Find_FDE(void *pc, void *bases);
const void *__wrap__Unwind_Find_FDE(void *pc, void *bases);

/*
 * The linker puts this in front of the unwinder's own. Where there is no table that
 * looks at the code for what the kernel calls handlers with; but the last return
 * address on a stack somebody made himself can be any number.
 */
const void *__wrap__Unwind_Find_FDE(void *pc, void *bases)
{
	const void *table = __real__Unwind_Find_FDE(pc, bases);
	struct dl_find_object module;

	if (!table && way_out && _dl_find_object(pc, &module))
		__builtin_longjmp(way_out, 1);
	return table;
}

/* From -1: the first is the walk's own. */
static _Unwind_Reason_Code take(struct _Unwind_Context *context, void *data)
{
	struct walk *walk = data;
	int before = 0;
	uintptr_t ip = _Unwind_GetIPInfo(context, &before);

	if (!ip)
		return _URC_END_OF_STACK;
	/* A signal came before this instruction, all others are behind their call. */
	if (walk->n >= 0)
		walk->frames[walk->n] = (void *)(ip + (before ? 1 : 0));
	return ++walk->n < walk->most ? _URC_NO_REASON : _URC_END_OF_STACK;
}

__attribute__((noinline)) int pin_backtrace_walk(void **frames, int n)
{
	struct walk walk = {frames, -1, n};
	void *here[5], **outer = way_out;

	if (n > 0 && !__builtin_setjmp(here)) {
		way_out = here;
		_Unwind_Backtrace(take, &walk);
	}
	way_out = outer;
	return walk.n > 0 ? walk.n : 0;
}

void pin_backtrace_init(void)
{
	void *frame;

	pin_backtrace_walk(&frame, 1);
}

bool pin_backtrace_ours(const void *frame)
{
	uintptr_t at = (uintptr_t)frame;

	return at > (uintptr_t)__ehdr_start && at < (uintptr_t)_DYNAMIC;
}

/*
 * The walk behind a fatal error is libunwind's, where it is installed: it makes sure of
 * an address before it reads there, and the stack may be what is broken. Loaded then:
 * it allocates, locks and keeps a pipe open, so it is none for the walks inside malloc.
 */
static int walk_with_care(void **frames, int n)
{
#if HAVE_LIBUNWIND
	void *library = dlopen("libunwind.so.8", RTLD_LAZY | RTLD_LOCAL);
	__typeof__(&unw_backtrace) walk;

	walk = library ? (__typeof__(walk))dlsym(library, "unw_backtrace") : NULL;
	if (walk)
		return walk(frames, n);
#endif
	return pin_backtrace_walk(frames, n);
}

void pin_backtrace_say(void)
{
	char name[PIN_BACKTRACE_NAME];
	void *frames[MOST_FRAMES];
	int n = walk_with_care(frames, MOST_FRAMES);

	for (int i = 0; i < n; i++) {
		if (pin_backtrace_ours(frames[i]))
			continue;
		pin_backtrace_name(frames[i], false, name, sizeof name);
		pin_log_line("  at %s", name);
	}
}
