/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Walks of the stack, by the unwinder of the compiler's run-time library. It is linked from the
 * archive (libgcc_eh), because a copy of our own is safe inside malloc: it finds unwind tables
 * by _dl_find_object(), or module.c does, which neither allocates nor locks. It would do both
 * for frames that are registered at run time, but nobody registers any with this copy.
 */
#include <config.h>

#include "preload/report/backtrace.h"
#include "allocator/log.h"
#include "preload/report/module.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <unwind.h>

#if HAVE_LIBUNWIND
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#endif

#define MOST_FRAMES 32

/* The library's code is between its ELF header and _DYNAMIC. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));

struct walk {
	void **frames;
	int n, most;
};

/* Where a longjmp ends this thread's walk at once. */
static __thread void **escape __attribute__((tls_model("initial-exec")));

const void *__real__Unwind_Find_FDE(void *pc, void *bases);
const void *__wrap__Unwind_Find_FDE(void *pc, void *bases);

/*
 * The linker puts this in front of the unwinder's own function (--wrap). Where there is no
 * table the unwinder reads the code, looking for the kernel's signal trampoline; but on a stack
 * that a program has made the last return address can be any number. So the walk ends there if
 * the address is in no module.
 */
const void *__wrap__Unwind_Find_FDE(void *pc, void *bases)
{
#if HAVE__DL_FIND_OBJECT
	const void *table = __real__Unwind_Find_FDE(pc, bases);
#else
	const void *table = pin_module_unwind_entry(pc, bases);
#endif
	struct pin_module module;

	if (!table && escape && !pin_module_find(pc, &module))
		__builtin_longjmp(escape, 1);
	return table;
}

/* walk->n begins at -1: the first frame is that of pin_backtrace_walk() itself. */
static _Unwind_Reason_Code take_frame(struct _Unwind_Context *context, void *data)
{
	struct walk *walk = data;
	int before = 0;
	uintptr_t ip = _Unwind_GetIPInfo(context, &before);

	if (!ip)
		return _URC_END_OF_STACK;
	/* A signal interrupts before this instruction; a return address is behind its call. */
	if (walk->n >= 0)
		walk->frames[walk->n] = (void *)(ip + (before ? 1 : 0));
	return ++walk->n < walk->most ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/*
 * The first walk of a process sets up the unwinder, by pthread_once(). A walk in a signal
 * handler that interrupts it would wait for that for ever.
 */
static _Atomic bool is_set_up;

static inline bool is_unwinder_set_up(void)
{
	return PIN_LIKELY(atomic_load_explicit(&is_set_up, memory_order_relaxed));
}

static inline bool may_unwind(bool within_another)
{
	return is_unwinder_set_up() || !within_another;
}

/* Writes only once: all threads read it. */
static inline void note_set_up(bool within_another)
{
	if (!is_unwinder_set_up() && !within_another)
		is_set_up = true;
}

__attribute__((noinline)) int pin_backtrace_walk(void **frames, int n)
{
	struct walk walk = {.frames = frames, .n = -1, .most = n};
	void *here[5], **outer = escape;

	if (n > 0 && may_unwind(outer) && !__builtin_setjmp(here)) {
		escape = here;
		_Unwind_Backtrace(take_frame, &walk);
	}
	escape = outer;
	note_set_up(outer || n <= 0);
	return walk.n > 0 ? walk.n : 0;
}

static _Unwind_Reason_Code find_signal_frame(struct _Unwind_Context *context, void *found)
{
	int before = 0;

	if (!_Unwind_GetIPInfo(context, &before))
		return _URC_END_OF_STACK;
	*(volatile bool *)found = before;
	return before ? _URC_END_OF_STACK : _URC_NO_REASON;
}

__attribute__((noinline)) bool pin_backtrace_in_handler(void)
{
	void *here[5], **outer = escape;
	volatile bool found = false;

	if (may_unwind(outer) && !__builtin_setjmp(here)) {
		escape = here;
		_Unwind_Backtrace(find_signal_frame, (void *)&found);
	}
	escape = outer;
	note_set_up(outer);
	return found;
}

bool pin_backtrace_ours(const void *frame)
{
	uintptr_t at = (uintptr_t)frame;

	return at > (uintptr_t)__ehdr_start && at < (uintptr_t)_DYNAMIC;
}

/* Few, because the program's stack may be broken, and the caller is not far. */
#define MOST_OURS 12

void pin_backtrace_caller(char *buf, size_t size)
{
	void *frames[MOST_OURS];
	int n = pin_backtrace_walk(frames, MOST_OURS), i = 0;

	while (i < n && pin_backtrace_ours(frames[i]))
		i++;
	if (i < n)
		pin_backtrace_place(frames[i], buf, size);
	else
		pin_format(buf, size, "?");
}

/*
 * After a fatal error the stack may be broken, so libunwind walks it if it is installed: it
 * makes sure of an address before it reads there. It is loaded only then, and of no use inside
 * malloc: it allocates, locks and keeps a pipe open.
 */
static int walk_broken_stack(void **frames, int n)
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

void pin_backtrace_log(void)
{
	char name[PIN_BACKTRACE_NAME];
	void *frames[MOST_FRAMES];
	int n = walk_broken_stack(frames, MOST_FRAMES);

	for (int i = 0; i < n; i++) {
		if (pin_backtrace_ours(frames[i]))
			continue;
		pin_backtrace_name(frames[i], false, name, sizeof name);
		pin_log_line("  at %s", name);
	}
}
