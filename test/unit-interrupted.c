/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What may interrupt a thread that registers: its cancellation, at each call of libibverbs; and
 * a handler of a signal that replaces pages, whenever the thread has a lock, with the real
 * kernel. And fork(), as soon as there is a protection domain.
 */
#include <config.h>

#include "regpool/evict.h"
#include "regpool/state.h"
#include "regpool/watch.h"
#include "test/beside.h"
#include "test/spans.h"
#include "test/tap.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>

/* The linker puts these in place of the library's (--wrap). */
void __real_pin_unlock(struct pin_mutex *const *lock);
int __real_pthread_sigmask(int how, const sigset_t *set, sigset_t *old);

static char *heap;
static struct ibv_pd *pd;

/* --- cancellation ------------------------------------------------------------------- */

/* And what lies over a border of two. */
static void register_pieces(void)
{
	for (int i = 0; i < 3; i++)
		pin_mr_deregister(reg(pd, heap + i * PIECE, PIECE, RIGHTS));
	pin_mr_deregister(reg(pd, heap + PIECE - 1, 2, RIGHTS));
}

/* All that takes locks, or makes an entry BUSY; at the end nothing is registered. */
static void do_all(void)
{
	struct ibv_context *context = fake_context_new();
	struct pin_mr_key keys;

	pd = new_pd_of(context);
	register_pieces();
	pin_domain_close(context);
	fake_context_end(context);
	pd = new_pd();
	register_pieces();
	look_up(pd, heap, 64, &keys);
	pin_evict_one(NULL, 0);
	pin_domain_disarm(pd);
	register_pieces();
	pin_domain_dealloc(pd);
}

static _Atomic bool is_through;

static void *be_cancelled(void *arg)
{
	pthread_cancel(pthread_self());
	do_all();
	is_through = true;
	pthread_testcancel();
	return arg;
}

static void cancelled(void)
{
	bool is_cancelled;

	fake_verbs.on_call = pthread_testcancel;
	is_cancelled = in_threads(1, be_cancelled) == (uintptr_t)PTHREAD_CANCELED;
	fake_verbs.on_call = NULL;
	ok(is_through && is_cancelled,
	   "a thread that is to be cancelled is not while it registers");
	do_all();
	ok(!fake_verbs.live, "others can register and deregister afterwards");
}

/* --- signals ------------------------------------------------------------------------ */

static unsigned n_calls, n_open;
static _Thread_local unsigned n_masks;

int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	n_masks++;
	return __real_pthread_sigmask(how, set, old);
}

/* Those that a thread causes itself would end the process if they were blocked. */
static void look_at_mask(void)
{
	sigset_t blocked;

	__real_pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	n_calls++;
	n_open += !sigismember(&blocked, SIGALRM) || !sigismember(&blocked, SIGTERM) ||
		  sigismember(&blocked, SIGSEGV) || sigismember(&blocked, SIGSYS);
}

static void blocked(void)
{
	struct ibv_mr *mr;

	fake_verbs.on_call = look_at_mask;
	do_all();
	ok(n_calls > 10 && !n_open, "signals are blocked in each of %u calls of libibverbs",
	   n_calls);
	fake_verbs.on_call = NULL;
	pd = new_pd();
	register_pieces();
	n_masks = 0;
	mr = reg(pd, heap + 3 * PIECE, PIECE, RIGHTS);
	ok(n_masks == 2, "blocking them takes two system calls for a registration: %u",
	   n_masks);
	pin_mr_deregister(mr);
	for (int i = 0; i < 3; i++)
		register_pieces();
	ok(n_masks == 2, "and none for a hit");
	pin_domain_dealloc(pd);
}

/* --- handlers that replace pages ---------------------------------------------------- */

static _Thread_local bool is_interrupted;
static char *foreign;
static volatile sig_atomic_t n_handled;

bool __wrap_pin_listeners_find(void)
{
	return pin_state_off() != PIN_CHILD;
}

void __wrap_pin_listeners_invalidate(uintptr_t start, size_t length, const void *caller)
{
	(void)start;
	(void)length;
}

bool __wrap_pin_listeners_insert_later(const void *caller)
{
	return false;
}

/* The second call waits for the thread that has read the message of the first. */
static void discard(int unused)
{
	for (int i = 0; i < 2; i++) {
		madvise(heap + 4 * PIECE, PIN_PAGE, MADV_DONTNEED);
		madvise(foreign, PIN_PAGE, MADV_DONTNEED);
	}
	n_handled++;
}

void __wrap_pin_unlock(struct pin_mutex *const *lock)
{
	if (is_interrupted)
		raise(SIGUSR1);
	__real_pin_unlock(lock);
}

static void register_twice(char *p)
{
	for (int i = 0; i < 2; i++)
		pin_mr_deregister(reg(pd, p, PIN_PAGE, RIGHTS));
}

static bool ends_at_once(void)
{
	return true;
}

static void handled(void)
{
	char *others = mmap(NULL, 4 * PIN_PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	foreign = others + 2 * PIN_PAGE;
	signal(SIGUSR1, discard);
	pd = new_pd();
	register_twice(foreign);
	register_pieces();
	is_interrupted = true;
	register_twice(others);
	ok(n_handled > 0, "a handler may replace pages while foreign memory is registered");
	in_child(ends_at_once);
	do_all();
	is_interrupted = false;
	ok(n_handled > 10, "or heap memory is registered, evicted, or deregistered");
	ok(!fake_verbs.live, "nothing is left");
}

/* --- fork() ------------------------------------------------------------------------- */

static struct ibv_pd *parents;

static bool leaves_it_alone(void)
{
	unsigned made = fake_verbs.made;

	pin_mr_deregister(reg(parents, heap, 64, RIGHTS));
	return pin_state_off() == PIN_CHILD && !pin_state.created && !pin_watch_is_on() &&
	       fake_verbs.made == made + 1;
}

static void forked(void)
{
	parents = new_pd();
	ok(in_child(leaves_it_alone),
	   "a child does not register in a domain in which its parent has not yet");
	pin_domain_dealloc(parents);
}

int main(void)
{
	struct pin_span *span = NULL;

	alarm(60);
	if (!lazy_pool())
		return 99;
	heap = grow(&span, 5 * PIECE);
	memset(heap, 1, 5 * PIECE);
	forked();
	cancelled();
	blocked();
	if (close(pin_uffd_open()))
		ok(true, "userfaultfd is not available here");
	else
		handled();
	return done_testing();
}
