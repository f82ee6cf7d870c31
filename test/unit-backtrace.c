/* SPDX-License-Identifier: BSD-2-Clause */
/* Stacks taken inside malloc, and their names looked up afterwards. */
#include <config.h>

#include "preload/report/backtrace.h"
#include "test/frame.h"
#include "test/tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

/* The most frames of a walk that reuses the last one. */
#define MOST 32

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);
int called_from_here(void **frames, int n);

static __thread bool walking;
static _Atomic int allocations;

static void count(void)
{
	if (walking)
		allocations++;
}

PIN_EXPORT void *malloc(size_t n)
{
	count();
	return __libc_malloc(n);
}

PIN_EXPORT void *calloc(size_t n, size_t size)
{
	count();
	return __libc_calloc(n, size);
}

PIN_EXPORT void *realloc(void *p, size_t n)
{
	count();
	return __libc_realloc(p, n);
}

PIN_EXPORT void free(void *p)
{
	count();
	__libc_free(p);
}

static FRAME int walk(void **frames, int n)
{
	int got;

	walking = true;
	got = pin_backtrace_walk(frames, n);
	walking = false;
	return got;
}

FRAME int called_from_here(void **frames, int n)
{
	return walk(frames, n);
}

static FRAME int deep(int depth, void **frames, int n)
{
	int got = depth ? deep(depth - 1, frames, n) : called_from_here(frames, n);

	__asm__ volatile("" : "+r"(got));
	return got;
}

static bool is_named(const void *frame, const char *name)
{
	char text[PIN_BACKTRACE_NAME], wanted[PIN_BACKTRACE_NAME];

	pin_backtrace_name(frame, true, text, sizeof text);
	snprintf(wanted, sizeof wanted, "%s (unit-backtrace.c:", name);
	return !strncmp(text, wanted, strlen(wanted));
}

/* walk, called_from_here, and one deep more than the depth. */
static bool is_whole(void *const *frames, int n, int depth)
{
	if (n < depth + 3 || !is_named(frames[0], "walk") ||
	    !is_named(frames[1], "called_from_here"))
		return false;
	for (int i = 2; i < depth + 3; i++)
		if (!is_named(frames[i], "deep"))
			return false;
	return true;
}

/* Under a filter that kills for a system call. */
static void asks_nothing_of_the_kernel(void)
{
	void *frames[MOST];
	int status = -1;
	pid_t child = fork();

	if (!child) {
		deep(1, frames, MOST);
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
			_exit(2);
		syscall(SYS_exit, deep(5, frames, MOST) < 8);
	}
	waitpid(child, &status, 0);
	ok(!status, "a walk makes no system call: status %x", (unsigned int)status);
}

/*
 * The unwinder's own set-up, interrupted by a handler that walks as well. The linker puts this
 * in place of what it calls (--wrap).
 */
int __wrap_pthread_once(pthread_once_t *once, void (*set_up)(void));
int __real_pthread_once(pthread_once_t *once, void (*set_up)(void));

static void (*set_unwinder_up)(void);
static bool interrupts;
static int found_in_handler = -1;

static void walk_in_handler(int sig)
{
	void *frames[MOST];

	(void)sig;
	found_in_handler = deep(1, frames, MOST);
}

static void interrupt(void)
{
	raise(SIGUSR1);
	set_unwinder_up();
}

int __wrap_pthread_once(pthread_once_t *once, void (*set_up)(void))
{
	set_unwinder_up = set_up;
	return __real_pthread_once(once, interrupts ? interrupt : set_up);
}

/* Before any other walk. */
static void first_walk_interrupted(void)
{
	void *frames[MOST];
	int status = -1;
	pid_t child = fork();

	if (!child) {
		interrupts = true;
		signal(SIGUSR1, walk_in_handler);
		alarm(10); /* it would wait for itself */
		_exit(deep(5, frames, MOST) < 8 || found_in_handler != 0 ||
		      deep(5, frames, MOST) < 8);
	}
	waitpid(child, &status, 0);
	ok(!status,
	   "a walk in a signal handler that interrupts the first walk returns no frames: "
	   "status %x",
	   (unsigned int)status);
}

static void in_order_and_cut(void)
{
	void *frames[MOST + 1], *fewer[MOST];
	int n = deep(5, frames, MOST);

	ok(is_whole(frames, n, 5), "a walk returns the stack, innermost frame first: %d frames",
	   n);
	frames[MOST] = frames[7] = NULL;
	ok(deep(20, frames, 7) == 7 && frames[6] && !frames[7], "a walk stops at seven frames");
	ok(deep(90, frames, MOST) == MOST && !frames[MOST],
	   "a walk stops at the maximum number of frames");
	ok(deep(2, fewer, 1) == 1 && is_named(fewer[0], "walk"),
	   "room for one frame gets the innermost");
	ok(deep(2, fewer, 0) == 0, "room for none gets none");
	ok(pin_backtrace_ours(frames[0]), "a frame in the same object is the library's");
	ok(!pin_backtrace_ours((void *)(uintptr_t)&dladdr) && !pin_backtrace_ours(NULL),
	   "neither is a frame in libc nor NULL");
}

/* The same stack twice from one place: as a walk that is too long for shortcuts, and not. */
static FRAME bool same_both_ways(void)
{
	void *frames[2][MOST + 1];
	int n[2];

	for (volatile int i = 0; i < 2; i++)
		n[i] = walk(frames[i], MOST + 1 - i);
	if (n[0] > MOST)
		n[0] = MOST;
	return n[0] == n[1] && !memcmp(frames[0], frames[1], (size_t)n[0] * sizeof(void *));
}

static int left_to_compare, compared_same;

/* Frames of any size; two of these, which call each other and themselves. */
static bool wander(unsigned *random, int depth);
static FRAME bool stray(unsigned *random, int depth)
{
	bool same = wander(random, depth - 1);

	__asm__ volatile("" : "+r"(same));
	return same_both_ways() && same;
}

static FRAME bool wander(unsigned *random, int depth)
{
	volatile char *room = __builtin_alloca(1 + (unsigned)rand_r(random) % 300);
	bool same = same_both_ways();

	*room = 0;
	compared_same += same;
	if (--left_to_compare < 0 || depth <= 0)
		return same;
	for (int i = rand_r(random) % 4; i; i--)
		same = (i & 1 ? stray : wander)(random, depth - 1) && same;
	return same;
}

/* From any depth, so that walks are cut, and the next is not. */
static FRAME bool wander_at(unsigned *random, int depth)
{
	bool same = depth ? wander_at(random, depth - 1) : wander(random, 25);

	__asm__ volatile("" : "+r"(same));
	return same;
}

static void shortcuts(void)
{
	unsigned random = 1;
	int calls = 0, same = 0;

	for (; calls < 400; calls++) {
		left_to_compare = 100;
		same += wander_at(&random, rand_r(&random) % 40);
	}
	ok(same == calls && compared_same > 5000,
	   "a walk that starts like the one before it returns the right frames: %d",
	   compared_same);
}

static int good_walks(int rounds)
{
	void *frames[MOST];
	int good = 0;

	for (int i = 0; i < rounds; i++)
		good += deep(i % 30, frames, MOST) >= i % 30 + 3;
	return good;
}

static void *walk_often(void *count_to)
{
	*(int *)count_to = good_walks(20000);
	return NULL;
}

static void in_threads(void)
{
	pthread_t threads[8];
	int good[8], all = 0;

	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, walk_often, &good[i]);
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], NULL);
		all += good[i];
	}
	ok(all == 160000, "eight threads can walk at once: %d walks", all);
}

/* The lock a loader, or another unwinder, holds while malloc is called. */
static int in_a_thread_meanwhile(struct dl_phdr_info *info, size_t size, void *good)
{
	pthread_t thread;

	(void)info;
	(void)size;
	pthread_create(&thread, NULL, walk_often, good);
	pthread_join(thread, NULL);
	return 1;
}

static void while_the_loader_is_locked(void)
{
	int good = 0;

	alarm(60);
	dl_iterate_phdr(in_a_thread_meanwhile, &good);
	alarm(0);
	ok(good == 20000, "a walk does not wait for the loader's lock");
}

static void *handled[MOST];
static int n_handled;

static void handler(int number)
{
	(void)number;
	n_handled = deep(3, handled, MOST);
}

static FRAME void interrupted(void)
{
	raise(SIGUSR1);
}

static void in_a_signal_handler(void)
{
	static char memory[32768];
	stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	bool below = false;

	sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &action, NULL);
	interrupted();
	ok(is_whole(handled, n_handled, 3) && is_named(handled[6], "handler"),
	   "a walk in a signal handler on an alternate stack works");
	for (int i = 7; i < n_handled && !below; i++)
		below = is_named(handled[i], "interrupted");
	ok(below, "it continues into the code that the signal interrupted");
}

static ucontext_t outer, inner;

static void coroutine(void)
{
	n_handled = deep(3, handled, MOST);
	swapcontext(&inner, &outer);
}

static void make_context(void)
{
	static char memory[32768];

	n_handled = 0;
	getcontext(&inner);
	inner.uc_stack.ss_sp = memory;
	inner.uc_stack.ss_size = sizeof memory;
	makecontext(&inner, coroutine, 0);
}

/* As on stacks that people make themselves, for functions that do not return. */
static void return_to(uintptr_t anywhere)
{
#ifdef __x86_64__
	*(uintptr_t *)inner.uc_mcontext.gregs[REG_RSP] = anywhere;
#else
	inner.uc_mcontext.regs[30] = anywhere;
#endif
}

static void on_a_foreign_stack(void)
{
	static const uintptr_t last[] = {0, 1, 0x1234, 0x4141414141414141, UINTPTR_MAX};

	make_context();
	swapcontext(&outer, &inner);
	ok(is_whole(handled, n_handled, 3) && is_named(handled[6], "coroutine") &&
		   n_handled < 10,
	   "a walk on a makecontext() stack ends at its end: %d frames", n_handled);
	for (size_t i = 0; i < PIN_ARRAY_SIZE(last); i++) {
		make_context();
		return_to(last[i]);
		swapcontext(&outer, &inner);
		ok(n_handled == 7 && is_whole(handled, n_handled, 3),
		   "it ends before a return address such as %#zx", (size_t)last[i]);
	}
}

/* After all the others, with their first walks of a thread. */
static void allocates_nothing(void)
{
	char *(*volatile copy)(const char *) = strdup;

	ok(!allocations, "no walk allocates: %d", allocations);
	walking = true;
	free(copy("x"));
	walking = false;
	ok(allocations == 2, "allocations are counted by this test");
}

static void names(void)
{
	char text[PIN_BACKTRACE_NAME], small[20];
	void *frames[MOST];

	deep(0, frames, MOST);
	pin_backtrace_name(frames[1], true, small, sizeof small);
	ok(strlen(small) == sizeof small - 1, "a name is truncated to the buffer: %s", small);
	pin_backtrace_name(frames[1], true, text, 32);
	ok(!strncmp(text, "called_fr (unit-backtrace.c:", 28) && text[30] == ')',
	   "a long function name is truncated, not its file and line: %s", text);
	pin_backtrace_name((char *)(uintptr_t)&getpid + 1, true, text, sizeof text);
	ok(!strncmp(text, "getpid (libc.so.", 16) || !strncmp(text, "__getpid (", 10),
	   "a function of libc is named: %s", text);
	pin_backtrace_name((char *)(uintptr_t)&getpid + 1, false, text, sizeof text);
	ok(strstr(text, "getpid (libc.so."), "so it is without line numbers: %s", text);
	pin_backtrace_name((void *)0x1001, true, text, sizeof text);
	ok(!strcmp(text, "?+0x1000"), "an address outside of all modules has no name: %s",
	   text);
	pin_backtrace_done();
	pin_backtrace_done();
	ok(is_named(frames[0], "walk"), "names can be looked up again after cleanup");
	pin_backtrace_done();
}

int main(void)
{
	first_walk_interrupted();
	asks_nothing_of_the_kernel();
	in_order_and_cut();
	pin_backtrace_reuse_walks();
	shortcuts();
	in_threads();
	while_the_loader_is_locked();
	in_a_signal_handler();
	on_a_foreign_stack();
	allocates_nothing();
	names();
	return done_testing();
}
