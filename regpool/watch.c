/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/watch.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "regpool/books.h"
#include "regpool/callers.h"
#include "regpool/gone.h"
#include "regpool/pieces.h"
#include "regpool/pool.h"
#include "regpool/thread.h"
#include "regpool/uffd.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

struct pin_watched pin_watched;
_Atomic uint32_t pin_watch_pending;

enum { UNKNOWN, ON, OFF };
static _Atomic int state;
static const struct pin_watch_heap *_Atomic heap;
static pin_watch_teller *_Atomic teller;

/* What happened where a descriptor watches. */
static struct {
	_Atomic uint32_t ticket;  /* of the newest message */
	_Atomic uint32_t settled; /* of the newest that needs nothing any more */
	uint32_t answered;	  /* of the newest that listeners were told of */
	_Atomic int what;	  /* the one that was taken last says; 0: nothing */
	_Atomic uintptr_t from, to, moved_to;
	/* While a message waits: a thread that registers was discarding pages, and which. */
	_Atomic pid_t caller;
	_Atomic uintptr_t caller_from, caller_to;
	/*
	 * Which thread's discards the messages after `others` up to `own` were: it need wait
	 * for nothing of them.
	 */
	_Atomic pid_t owner;
	_Atomic uint32_t others, own;
	_Atomic uint32_t news; /* changes with `settled` and `own`, and is waited on */
} events[PIN_UFFDS];

/* Descriptors whose listeners are to be told, a bit each, and the word that is waited on. */
static _Atomic uint64_t due, due_again;
static _Atomic uint32_t rung;

/* Those of which a message was taken before its listeners were told; the telling thread's. */
static uint64_t late;

/* Since when a listener is at it; 0: none is. */
static _Atomic uint64_t telling_since_ns;

/* A listener may wait for a lock of the caller's. The rest of that thread waits for nobody. */
static bool is_stuck(void)
{
	uint64_t since = atomic_load(&telling_since_ns);

	return since && pin_os_now_ns() - since >= PIN_UFFD_PATIENCE_MS * 1000000ull;
}

/* --- in the thread that has the descriptors ----------------------------------- */

static void note_caller(unsigned n)
{
	uintptr_t start = 0, end = 0;

	atomic_store(&events[n].caller, pin_callers_discarding(&start, &end));
	atomic_store(&events[n].caller_from, start);
	atomic_store(&events[n].caller_to, end);
}

static void woke(unsigned n, uint32_t ticket)
{
	note_caller(n);
	atomic_store(&events[n].ticket, ticket);
	atomic_fetch_or(&due, (uint64_t)1 << n);
	atomic_fetch_add(&rung, 1);
	pin_os_wake(&rung);
}

/*
 * The kernel lets the program's call return when its message has been read, and not before: so
 * `pending` is seen by whoever comes after the call.
 */
static void taking(unsigned n)
{
	if (n == PIN_UFFD_HEAP)
		atomic_store(&pin_watch_pending, 1);
	atomic_store(&events[n].what, 0);
}

static void note(unsigned n, const struct uffd_msg *message)
{
	bool moved = message->event == UFFD_EVENT_REMAP;
	uintptr_t from = moved ? message->arg.remap.from : message->arg.remove.start;
	uintptr_t to = moved ? from + message->arg.remap.len : message->arg.remove.end;
	const struct pin_watch_heap *its = atomic_load(&heap);

	/* Before there are keys it is noted for those to come. */
	if (n == PIN_UFFD_HEAP && its)
		its->withdraw(from, to - from);
	else if (n == PIN_UFFD_HEAP)
		pin_granules_replace(from, to - from);
	atomic_store(&events[n].from, from);
	atomic_store(&events[n].to, to);
	atomic_store(&events[n].moved_to, message->arg.remap.to);
	atomic_store(&events[n].what, message->event);
	atomic_fetch_add(&pin_watched.events, 1);
}

static void took(unsigned n, const struct uffd_msg *message)
{
	if (message)
		note(n, message);
	if (n != PIN_UFFD_HEAP)
		return;
	atomic_store(&pin_watch_pending, 0);
	pin_os_wake(&pin_watch_pending);
}

static void say_unwatched(int error)
{
	pin_warn_once(
		"memory that the program replaces is not noticed: userfaultfd: %s; what an "
		"MPI library has registered of it may be sent stale (PINALLOC_WATCH=off "
		"does without it, and without this line)",
		strerrordesc_np(error));
}

static void lost(int error)
{
	atomic_store(&state, OFF);
	say_unwatched(error);
}

static const struct pin_uffd_user user = {woke, taking, took, is_stuck, lost};

/* --- in the thread that tells -------------------------------------------------- */

static void tell(uintptr_t start, size_t length)
{
	pin_watch_teller *its = atomic_load(&teller);

	atomic_fetch_add(&pin_watched.told, 1);
	if (!its)
		return;
	atomic_store(&telling_since_ns, pin_os_now_ns());
	its(start, length);
	atomic_store(&telling_since_ns, 0);
}

static void tell_heap(void)
{
	for (uint32_t i = 0; i < pin_span_count(); i++) {
		struct pin_range range = pin_range_of_span(pin_span_get(i));

		tell(range.start, pin_range_length(range));
	}
}

/* The books are not locked meanwhile: listeners deregister. */
static void tell_foreign(unsigned n)
{
	struct pin_pages ranges[64];
	uintptr_t from = 0;
	size_t found;

	do {
		found = pin_pieces_list(n, from, ranges, PIN_ARRAY_SIZE(ranges));
		for (size_t i = 0; i < found; i++)
			tell(ranges[i].start, ranges[i].end - ranges[i].start);
		from = found ? ranges[found - 1].end : 0;
	} while (found == PIN_ARRAY_SIZE(ranges));
}

static void tell_news(unsigned n)
{
	atomic_fetch_add(&events[n].news, 1);
	pin_os_wake(&events[n].news);
}

/* Whose discard it may be; nobody's: 0. */
struct discarder {
	pid_t thread;
	uintptr_t from, to;
};

static pid_t discarder_of(const struct discarder *it, const struct pin_gone *gone)
{
	return gone->from >= it->from && gone->to <= it->to ? it->thread : 0;
}

/*
 * The thread that discards has returned from that when it registers anything. The owner is
 * changed last but one: who reads `own` first and then finds itself the owner has `others`.
 */
static void except_owner(unsigned n, pid_t owner)
{
	uint32_t answered = events[n].answered;

	if (owner != atomic_load(&events[n].owner)) {
		atomic_store(&events[n].owner, 0);
		atomic_store(&events[n].others, answered - 1);
		atomic_store(&events[n].owner, owner);
	}
	if (!owner)
		return;
	atomic_store(&events[n].own, answered);
	tell_news(n);
}

static void note_gone(unsigned n, const struct discarder *by)
{
	struct pin_gone gone = {.n = n,
				.what = atomic_load(&events[n].what),
				.from = atomic_load(&events[n].from),
				.to = atomic_load(&events[n].to),
				.moved_to = atomic_load(&events[n].moved_to)};
	uint64_t again = 0;

	/* What is unmapped has gone before the message comes. */
	if (gone.what == UFFD_EVENT_UNMAP)
		except_owner(n, atomic_load(&events[n].owner));
	else
		except_owner(n, gone.what == UFFD_EVENT_REMOVE ? discarder_of(by, &gone) : 0);
	pin_gone_begin(gone, &again);
	pin_watch_tell_again(again);
}

static void tell_all(unsigned n)
{
	if (n == PIN_UFFD_HEAP)
		tell_heap();
	tell_foreign(n);
}

/*
 * The caller went on before the listeners knew. Who has registered pages meanwhile that were
 * about to go is told when they have.
 */
static void note_late(unsigned n)
{
	atomic_fetch_add(&pin_watched.late, 1);
	late |= (uint64_t)1 << n;
}

static void answer(unsigned n)
{
	const struct pin_watch_heap *its = atomic_load(&heap);
	struct discarder by = {.thread = atomic_load(&events[n].caller),
			       .from = atomic_load(&events[n].caller_from),
			       .to = atomic_load(&events[n].caller_to)};
	bool is_late;

	events[n].answered = atomic_load(&events[n].ticket);
	tell_all(n);
	/* Then the next may come, and with it another caller. */
	is_late = !pin_uffd_take(n, events[n].answered);
	if (is_late)
		by.thread = 0;
	note_gone(n, &by);
	if (is_late)
		note_late(n);
	if (n == PIN_UFFD_HEAP && its)
		its->say();
}

/* Who waits for nothing any more need not be waited for. Returns how much is left to do. */
static unsigned settle(uint64_t answered)
{
	uint64_t again = 0;
	unsigned n_left = pin_gone_work(&again);

	pin_watch_tell_again(again);
	for (; answered; answered &= answered - 1) {
		unsigned n = (unsigned)__builtin_ctzll(answered);

		if (atomic_load(&events[n].settled) == events[n].answered ||
		    pin_gone_is_awaited(n))
			continue;
		if (late & (uint64_t)1 << n)
			tell_all(n);
		late &= ~((uint64_t)1 << n);
		atomic_store(&events[n].settled, events[n].answered);
		tell_news(n);
	}
	return n_left;
}

static void *run(void *arg)
{
	uint64_t answered = 0;

	(void)arg;
	for (;;) {
		uint32_t seen = atomic_load(&rung);
		uint64_t woken = atomic_exchange(&due, 0);
		uint64_t again = atomic_exchange(&due_again, 0);

		for (; again; again &= again - 1)
			tell_all((unsigned)__builtin_ctzll(again));
		answered |= woken;
		for (; woken; woken &= woken - 1)
			answer((unsigned)__builtin_ctzll(woken));
		if (settle(answered))
			pin_os_wait_ms(&rung, seen, 1);
		else
			pin_os_wait(&rung, seen);
	}
	return NULL;
}

/* --- in any thread --------------------------------------------------------------- */

/*
 * Hugetlb pages are mapped over the reservation as the heap grows. Were that watched, each
 * step would wait for the threads here, under jemalloc's locks, and so might they.
 */
static bool by_range(void)
{
	return pin_options.huge == PIN_HUGE_TLB;
}

static int start(void)
{
	int error = pin_uffd_start(&user);

	if (!error)
		error = pin_thread_start(run, NULL, "pinalloc-tell");
	if (!error && !by_range())
		error = -pin_uffd_watch(PIN_UFFD_HEAP, pin_reserve.base, pin_reserve.size);
	return error;
}

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

static void install(void)
{
	pthread_atfork(NULL, NULL, pin_watch_leave);
}

static int begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int error;

	if (!pin_options.watch)
		return OFF;
	pthread_once(&once, install);
	error = start();
	if (error)
		say_unwatched(error);
	return error ? OFF : ON;
}

bool pin_watch_start(const struct pin_watch_heap *its)
{
	if (its)
		atomic_store(&heap, its);
	if (PIN_UNLIKELY(atomic_load(&state) == UNKNOWN)) {
		pthread_mutex_lock(&starting);
		if (atomic_load(&state) == UNKNOWN)
			atomic_store(&state, begin());
		pthread_mutex_unlock(&starting);
	}
	return pin_watch_is_on();
}

void pin_watch_subscribe(pin_watch_teller *its)
{
	atomic_store(&teller, its);
}

bool pin_watch_is_on(void)
{
	return atomic_load_explicit(&state, memory_order_acquire) == ON;
}

void pin_watch_range(struct pin_range range)
{
	int error = by_range() && pin_watch_is_on()
			    ? -pin_uffd_watch(PIN_UFFD_HEAP, range.start,
					      pin_range_length(range))
			    : 0;

	if (error)
		say_unwatched(error);
}

bool pin_watch_has(const void *addr, size_t length)
{
	return pin_watch_is_on() &&
	       (pin_reserve_contains(addr) || pin_books_have(pin_pages_of(addr, length)));
}

/* Also when another thread was about to begin. */
void pin_watch_leave(void)
{
	pthread_mutex_init(&starting, NULL);
	atomic_store(&state, UNKNOWN);
	atomic_store(&pin_watch_pending, 0);
	atomic_store(&due, 0);
	atomic_store(&due_again, 0);
	atomic_store(&telling_since_ns, 0);
	late = 0;
	memset(events, 0, sizeof events);
	memset(&pin_watched, 0, sizeof pin_watched);
	pin_uffd_leave();
	pin_books_leave();
	pin_gone_leave();
}

/* Nothing that others have discarded is awaited any more, nor its own. */
static bool is_own(unsigned n, uint32_t ticket, pid_t caller)
{
	return atomic_load(&events[n].own) == ticket &&
	       atomic_load(&events[n].owner) == caller &&
	       (int32_t)(atomic_load(&events[n].settled) - atomic_load(&events[n].others)) >= 0;
}

static bool is_settled(unsigned n, uint32_t ticket, pid_t caller)
{
	return (int32_t)(atomic_load(&events[n].settled) - ticket) >= 0 ||
	       is_own(n, ticket, caller);
}

static PIN_COLD void await_settled(unsigned n, uint32_t ticket, pid_t caller)
{
	uint32_t seen = atomic_load(&events[n].news);

	while (!is_settled(n, ticket, caller) && !is_stuck()) {
		pin_os_wait_ms(&events[n].news, seen, PIN_UFFD_PATIENCE_MS / 4);
		seen = atomic_load(&events[n].news);
	}
}

void pin_watch_tell_again(uint64_t descriptors)
{
	if (!descriptors)
		return;
	atomic_fetch_or(&due_again, descriptors);
	atomic_fetch_add(&rung, 1);
	pin_os_wake(&rung);
}

uint32_t pin_watch_count(void)
{
	return atomic_load(&rung);
}

uint64_t pin_watch_quiet(uint64_t descriptors, pid_t caller)
{
	uint64_t sum = 0;

	for (; descriptors; descriptors &= descriptors - 1) {
		unsigned n = (unsigned)__builtin_ctzll(descriptors);
		uint32_t ticket = atomic_load(&events[n].ticket);

		if (PIN_UNLIKELY(atomic_load(&events[n].settled) != ticket))
			await_settled(n, ticket, caller);
		sum += ticket;
	}
	return sum;
}

bool pin_watch_was_quiet(uint64_t descriptors, uint64_t ticket)
{
	uint64_t sum = 0;

	for (; descriptors; descriptors &= descriptors - 1)
		sum += atomic_load(&events[__builtin_ctzll(descriptors)].ticket);
	return sum == ticket;
}

/* A forked child has no thread that would end it, and no registrations either. */
PIN_COLD void pin_watch_wait(void)
{
	while (atomic_load(&pin_watch_pending) && !pin_pool_off())
		pin_os_wait(&pin_watch_pending, 1);
}
