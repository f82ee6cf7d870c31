/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Walks of the stack, by the unwinder of the compiler's own run-time library. It is
 * linked in from the archive (libgcc_eh): that copy has no frames registered in it
 * at run time, for which alone it would allocate and lock, and finds unwind tables
 * by _dl_find_object(), which does neither. So it can be called inside malloc.
 */
#include <config.h>

#include "preload/report/backtrace.h"
#include "allocator/log.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <unwind.h>

#if HAVE_LIBUNWIND
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#endif

#define MOST_FRAMES 32

/* Where the linker put this library: its code is between its header and _DYNAMIC. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));

/* A frame, as the call it is at left it. */
struct step {
	void *frame;  /* the return address: the word before `sp` */
	uintptr_t sp; /* the stack pointer behind it */
	uintptr_t bp; /* the frame pointer, where there is one */
	int saved;    /* that many words before `sp` it was kept; 0: still in its register */
};

struct walk {
	void **frames;
	int n, most;
	bool trails; /* whether the thread's trail is looked at, and left anew */
	int passed;  /* steps of the trail that are not on this stack */
	struct step steps[MOST_FRAMES];
};

/*
 * Where a thread's last walk went. A walk that comes to a step of it ends there if what
 * leads further out is still where it was: samples come from stacks that have much in
 * common, and to read two words costs a hundredth of what unwinding a frame does. Where
 * the next frame is depends on a frame's code and these two registers alone; where a
 * function has aligned its stack, on a word of it too, which moves it by less than that.
 */
static __thread struct trail {
	int n;
	bool whole; /* not cut */
	struct step steps[MOST_FRAMES];
} trail __attribute__((tls_model("initial-exec")));

static bool uses_trails;

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

#if defined __x86_64__

#define FRAME_POINTER 6 /* in DWARF's numbers */
#define SAVED_BEFORE  8 /* words before `sp`: the return address, six registers, one spare */

static uintptr_t word_before(uintptr_t sp, int n)
{
	return ((const uintptr_t *)sp)[-n];
}

/* Notes the frame just taken; false if it is not as a plain call leaves it. */
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

/* The number on the trail of the step just noted, or -1. Further out is further up. */
static int find_on_trail(struct walk *walk)
{
	const struct step *step = &walk->steps[walk->n], *other;
	int i = walk->passed;

	while (i < trail.n && trail.steps[i].sp < step->sp)
		i++;
	walk->passed = i;
	other = &trail.steps[i];
	return i < trail.n && other->sp == step->sp && other->frame == step->frame ? i : -1;
}

/* Whether the next frame is found by the frame pointer: only then it points into this one. */
static bool needs_bp(const struct step *step, const struct step *next)
{
	return step->bp >= step->sp && step->bp < next->sp;
}

/* The frame pointer of a step, where that of the frame inside it is bp. */
static uintptr_t bp_of(const struct step *step, uintptr_t bp)
{
	return step->saved ? word_before(step->sp, step->saved) : bp;
}

/*
 * How far the trail leads from a step of it on, to `to` at most, where the frame pointer
 * is bp: it may hold anything as long as nobody needs it.
 */
static int leads_to(int from, int to, uintptr_t bp)
{
	int i = from + 1;

	for (; i < to; i++) {
		const struct step *step = &trail.steps[i];

		if (bp != step[-1].bp && needs_bp(step - 1, step))
			break;
		if (word_before(step->sp, 1) != (uintptr_t)step->frame)
			break;
		bp = bp_of(step, bp);
	}
	return i;
}

/* Goes the rest of the way by the trail, if it still leads there. */
static bool follow_trail(struct walk *walk)
{
	int from = find_on_trail(walk), room = walk->most - walk->n, to, end;
	uintptr_t bp = walk->steps[walk->n].bp;

	if (from < 0 || (!trail.whole && trail.n - from < room))
		return false;
	to = trail.n - from < room ? trail.n : from + room;
	end = leads_to(from, to, bp);
	if (end < to) {
		walk->passed = end;
		return false;
	}
	for (int i = from + 1; i < to; i++) {
		struct step *step = &walk->steps[++walk->n];

		*step = trail.steps[i];
		step->bp = bp = bp_of(step, bp);
		walk->frames[walk->n] = step->frame;
	}
	return true;
}

static void leave_trail(const struct walk *walk)
{
	if (walk->n < 0)
		return;
	trail.n = walk->n;
	trail.whole = walk->n < walk->most;
	memcpy(trail.steps, walk->steps, (size_t)walk->n * sizeof *trail.steps);
}

/* Whether the walk is done with the frame just taken, the rest being known. */
static bool take_shortcut(struct walk *walk, struct _Unwind_Context *context)
{
	walk->trails = walk->trails && note_step(walk, context);
	return walk->trails && follow_trail(walk);
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
	if (walk->n >= 0) {
		walk->frames[walk->n] = (void *)(ip + (before ? 1 : 0));
		if (take_shortcut(walk, context)) {
			walk->n++;
			return _URC_END_OF_STACK;
		}
	}
	return ++walk->n < walk->most ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/*
 * The first walk of a process has something to set up, by pthread_once(). One in a signal
 * handler that has interrupted another, which may be that one, would wait for it for ever.
 */
static _Atomic bool is_set_up;

static inline bool knows(void)
{
	return PIN_LIKELY(atomic_load_explicit(&is_set_up, memory_order_relaxed));
}

static inline bool may_unwind(bool within_another)
{
	return knows() || !within_another;
}

/* Not by each walk: all threads read it. */
static inline void has_unwound(bool within_another)
{
	if (!knows() && !within_another)
		is_set_up = true;
}

__attribute__((noinline)) int pin_backtrace_walk(void **frames, int n)
{
	struct walk walk;
	void *here[5], **outer = way_out;

	walk.frames = frames;
	walk.n = -1;
	walk.most = n;
	/* Not in a signal handler that has interrupted a walk. */
	walk.trails = uses_trails && n <= MOST_FRAMES && !outer;
	walk.passed = 0;
	if (n > 0 && may_unwind(outer) && !__builtin_setjmp(here)) {
		way_out = here;
		_Unwind_Backtrace(take, &walk);
	}
	if (walk.trails)
		leave_trail(&walk);
	way_out = outer;
	has_unwound(outer || n <= 0);
	return walk.n > 0 ? walk.n : 0;
}

void pin_backtrace_use_trails(void)
{
	uses_trails = true;
}

static _Unwind_Reason_Code look_for_signal(struct _Unwind_Context *context, void *found)
{
	int before = 0;

	if (!_Unwind_GetIPInfo(context, &before))
		return _URC_END_OF_STACK;
	*(volatile bool *)found = before;
	return before ? _URC_END_OF_STACK : _URC_NO_REASON;
}

__attribute__((noinline)) bool pin_backtrace_in_handler(void)
{
	void *here[5], **outer = way_out;
	volatile bool found = false;

	if (may_unwind(outer) && !__builtin_setjmp(here)) {
		way_out = here;
		_Unwind_Backtrace(look_for_signal, (void *)&found);
	}
	way_out = outer;
	has_unwound(outer);
	return found;
}

bool pin_backtrace_ours(const void *frame)
{
	uintptr_t at = (uintptr_t)frame;

	return at > (uintptr_t)__ehdr_start && at < (uintptr_t)_DYNAMIC;
}

/* Few: the program's stack may be what is broken, and it need not be gone far. */
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
