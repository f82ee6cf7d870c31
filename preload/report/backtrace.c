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

/* One frame of a walk: where its return address is, and the registers of its caller. */
struct step {
	void *frame;  /* the return address: the word before `sp` */
	uintptr_t sp; /* the stack pointer after the return */
	uintptr_t bp; /* the frame pointer, if there is one */
	int saved; /* so many words before `sp` it was saved; 0: it is still in its register */
};

struct walk {
	void **frames;
	int n, most;
	bool reuses; /* compares itself with the last walk, and becomes the last walk */
	int passed;  /* steps of the last walk that are not on this stack */
	struct step steps[MOST_FRAMES];
};

/*
 * The thread's last walk. A new walk that comes to one of its steps need not unwind the rest if
 * the return addresses and saved frame pointers further out have not changed: samples come from
 * stacks that have much in common, and reading two words costs a hundredth of unwinding a
 * frame. Where the next frame is depends only on a frame's code and these two registers; if a
 * function has aligned its stack, also on a word of it, which moves it by less than the
 * alignment.
 */
static __thread struct last_walk {
	int n;
	bool complete; /* not cut */
	struct step steps[MOST_FRAMES];
} last __attribute__((tls_model("initial-exec")));

static bool reuses_walks;

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

#if defined __x86_64__

#define FRAME_POINTER 6 /* in DWARF's numbers */
#define SAVED_BEFORE  8 /* words before `sp`: the return address, six registers, one spare */

static uintptr_t word_before(uintptr_t sp, int n)
{
	return ((const uintptr_t *)sp)[-n];
}

/* Notes the frame just taken. False if it is not as a plain call leaves it. */
static bool note_step(struct walk *walk, struct _Unwind_Context *context)
{
	struct step *step = &walk->steps[walk->n];

	step->frame = walk->frames[walk->n];
	step->sp = _Unwind_GetCFA(context);
	step->bp = _Unwind_GetGR(context, FRAME_POINTER);
	step->saved = 0;
	if (word_before(step->sp, 1) != (uintptr_t)step->frame)
		return false;
	if (!walk->n || step->bp == step[-1].bp)
		return true;
	for (int i = 2; i <= SAVED_BEFORE && !step->saved; i++)
		if (word_before(step->sp, i) == step->bp)
			step->saved = i;
	return step->saved;
}

#else

static uintptr_t word_before(uintptr_t sp, int n)
{
	return (void)sp, (void)n, 0;
}

static bool note_step(struct walk *walk, struct _Unwind_Context *context)
{
	return (void)walk, (void)context, false;
}

#endif

/* The index of the step just noted in the last walk, or -1. Outer frames are higher up. */
static int find_in_last_walk(struct walk *walk)
{
	const struct step *step = &walk->steps[walk->n], *other;
	int i = walk->passed;

	while (i < last.n && last.steps[i].sp < step->sp)
		i++;
	walk->passed = i;
	other = &last.steps[i];
	return i < last.n && other->sp == step->sp && other->frame == step->frame ? i : -1;
}

/* Whether the frame pointer leads to the next frame: only then it points between the two. */
static bool needs_bp(const struct step *step, const struct step *next)
{
	return step->bp >= step->sp && step->bp < next->sp;
}

/* The frame pointer of a step, if that of the next frame inwards is bp. */
static uintptr_t bp_of(const struct step *step, uintptr_t bp)
{
	return step->saved ? word_before(step->sp, step->saved) : bp;
}

/*
 * The first step of the last walk between `from` and `to` that is no longer on the stack, or
 * `to`. At `from` the frame pointer is bp, which may hold anything as long as no frame is found
 * by it.
 */
static int first_changed(int from, int to, uintptr_t bp)
{
	int i = from + 1;

	for (; i < to; i++) {
		const struct step *step = &last.steps[i];

		if (bp != step[-1].bp && needs_bp(step - 1, step))
			break;
		if (word_before(step->sp, 1) != (uintptr_t)step->frame)
			break;
		bp = bp_of(step, bp);
	}
	return i;
}

/* Takes the other frames from the last walk, if they are still on the stack. */
static bool finish_from_last_walk(struct walk *walk)
{
	int from = find_in_last_walk(walk), room = walk->most - walk->n, to, end;
	uintptr_t bp = walk->steps[walk->n].bp;

	if (from < 0 || (!last.complete && last.n - from < room))
		return false;
	to = last.n - from < room ? last.n : from + room;
	end = first_changed(from, to, bp);
	if (end < to) {
		walk->passed = end;
		return false;
	}
	for (int i = from + 1; i < to; i++) {
		struct step *step = &walk->steps[++walk->n];

		*step = last.steps[i];
		step->bp = bp = bp_of(step, bp);
		walk->frames[walk->n] = step->frame;
	}
	return true;
}

static void keep_as_last_walk(const struct walk *walk)
{
	if (walk->n < 0)
		return;
	last.n = walk->n;
	last.complete = walk->n < walk->most;
	memcpy(last.steps, walk->steps, (size_t)walk->n * sizeof *last.steps);
}

/* Whether the frame just taken ends the unwinding, because the rest is known. */
static bool is_rest_known(struct walk *walk, struct _Unwind_Context *context)
{
	walk->reuses = walk->reuses && note_step(walk, context);
	return walk->reuses && finish_from_last_walk(walk);
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
	if (walk->n >= 0) {
		walk->frames[walk->n] = (void *)(ip + (before ? 1 : 0));
		if (is_rest_known(walk, context)) {
			walk->n++;
			return _URC_END_OF_STACK;
		}
	}
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
	struct walk walk;
	void *here[5], **outer = escape;

	walk.frames = frames;
	walk.n = -1;
	walk.most = n;
	/* Not in a signal handler that has interrupted a walk. */
	walk.reuses = reuses_walks && n <= MOST_FRAMES && !outer;
	walk.passed = 0;
	if (n > 0 && may_unwind(outer) && !__builtin_setjmp(here)) {
		escape = here;
		_Unwind_Backtrace(take_frame, &walk);
	}
	if (walk.reuses)
		keep_as_last_walk(&walk);
	escape = outer;
	note_set_up(outer || n <= 0);
	return walk.n > 0 ? walk.n : 0;
}

void pin_backtrace_reuse_walks(void)
{
	reuses_walks = true;
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
