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
static _Atomic int watch_state;
static const struct pin_watch_heap *_Atomic heap_callbacks;
static pin_watch_listener *_Atomic listener;

/* State of each descriptor. */
static struct {
	_Atomic uint32_t ticket;  /* of the newest message */
	_Atomic uint32_t settled; /* of the newest that is completely dealt with */
	uint32_t handled;	  /* of the newest that listeners were notified of */
	_Atomic int what;	  /* UFFD_EVENT_* of the message read last; 0: none */
	_Atomic uintptr_t from, to, moved_to;
	/*
	 * The registering thread that was discarding pages as a message came, if any; and
	 * where.
	 */
	_Atomic pid_t caller;
	_Atomic uintptr_t caller_from, caller_to;
	/*
	 * The thread whose own discards caused the messages after `others` up to `own`. It need
	 * not wait for these.
	 */
	_Atomic pid_t owner;
	_Atomic uint32_t others, own;
	_Atomic uint32_t changes; /* incremented with `settled` and `own`; a futex */
} events[PIN_UFFDS];

/*
 * Descriptors whose listeners are to be notified, one bit each, and the futex that the
 * notifying thread sleeps on.
 */
static _Atomic uint64_t to_notify, to_notify_again;
static _Atomic uint32_t n_wakeups;

/*
 * Descriptors of which a message was read before their listeners were notified. Only for the
 * notifying thread.
 */
static uint64_t late_descriptors;

/* When the running call to a listener began; 0: none is running. */
static _Atomic uint64_t notifying_since_ns;

/*
 * A listener may be waiting for a lock that the sleeping call holds. Nothing else in the
 * notifying thread waits for other threads.
 */
static bool is_stuck(void)
{
	uint64_t since = atomic_load(&notifying_since_ns);

	return since && pin_os_now_ns() - since >= PIN_UFFD_TIMEOUT_MS * 1000000ull;
}

/* --- in the userfaultfd thread --------------------------------------------------- */

static void note_caller(unsigned n)
{
	uintptr_t start = 0, end = 0;

	atomic_store(&events[n].caller, pin_callers_discarding(&start, &end));
	atomic_store(&events[n].caller_from, start);
	atomic_store(&events[n].caller_to, end);
}

static void message_waits(unsigned n, uint32_t ticket)
{
	note_caller(n);
	atomic_store(&events[n].ticket, ticket);
	atomic_fetch_or(&to_notify, (uint64_t)1 << n);
	atomic_fetch_add(&n_wakeups, 1);
	pin_os_wake(&n_wakeups);
}

/* The program's call returns after this, so `pending` is visible to all that follows it. */
static void before_read(unsigned n)
{
	if (n == PIN_UFFD_HEAP)
		atomic_store(&pin_watch_pending, 1);
	atomic_store(&events[n].what, 0);
}

static void note_message(unsigned n, const struct uffd_msg *message)
{
	bool moved = message->event == UFFD_EVENT_REMAP;
	uintptr_t from = moved ? message->arg.remap.from : message->arg.remove.start;
	uintptr_t to = moved ? from + message->arg.remap.len : message->arg.remove.end;
	const struct pin_watch_heap *its = atomic_load(&heap_callbacks);

	/* Before any domain is armed: remembered for later registrations. */
	if (n == PIN_UFFD_HEAP && its)
		its->withdraw(from, to - from);
	else if (n == PIN_UFFD_HEAP)
		pin_granules_mark_replaced(from, to - from);
	atomic_store(&events[n].from, from);
	atomic_store(&events[n].to, to);
	atomic_store(&events[n].moved_to, message->arg.remap.to);
	atomic_store(&events[n].what, message->event);
	atomic_fetch_add(&pin_watched.events, 1);
}

static void after_read(unsigned n, const struct uffd_msg *message)
{
	if (message)
		note_message(n, message);
	if (n != PIN_UFFD_HEAP)
		return;
	atomic_store(&pin_watch_pending, 0);
	pin_os_wake(&pin_watch_pending);
}

static void warn_unwatchable(int error)
{
	const char *cure = error == EINVAL ? "use a newer kernel" : "allow the system call";

	pin_warn_once("memory that the program replaces is not noticed: userfaultfd: %s; an "
		      "MPI library may send stale data from it; %s, or set PINALLOC_WATCH=off",
		      strerrordesc_np(error), cure);
}

static void watch_failed(int error)
{
	atomic_store(&watch_state, OFF);
	warn_unwatchable(error);
}

static const struct pin_uffd_callbacks uffd_callbacks = {message_waits, before_read, after_read,
							 is_stuck, watch_failed};

/* --- in the notifying thread ----------------------------------------------------- */

static void notify_range(uintptr_t start, size_t length)
{
	pin_watch_listener *its = atomic_load(&listener);

	atomic_fetch_add(&pin_watched.told, 1);
	if (!its)
		return;
	atomic_store(&notifying_since_ns, pin_os_now_ns());
	its(start, length);
	atomic_store(&notifying_since_ns, 0);
}

static void notify_heap(void)
{
	for (uint32_t i = 0; i < pin_span_count(); i++) {
		struct pin_range range = pin_range_of_span(pin_span_get(i));

		notify_range(range.start, pin_range_length(range));
	}
}

/* Without the lock of the books: listeners deregister. */
static void notify_foreign(unsigned n)
{
	struct pin_pages ranges[64];
	uintptr_t from = 0;
	size_t found;

	do {
		found = pin_pieces_list(n, from, ranges, PIN_ARRAY_SIZE(ranges));
		for (size_t i = 0; i < found; i++)
			notify_range(ranges[i].start, ranges[i].end - ranges[i].start);
		from = found ? ranges[found - 1].end : 0;
	} while (found == PIN_ARRAY_SIZE(ranges));
}

static void wake_waiters(unsigned n)
{
	atomic_fetch_add(&events[n].changes, 1);
	pin_os_wake(&events[n].changes);
}

/* The thread that may be discarding pages, or 0, and where. */
struct discarder {
	pid_t thread;
	uintptr_t from, to;
};

static pid_t discarder_of(const struct discarder *it, const struct pin_gone *gone)
{
	return gone->from >= it->from && gone->to <= it->to ? it->thread : 0;
}

/*
 * A thread that is discarding pages has returned from that when it registers memory. `owner` is
 * set after `others`, so that a thread that reads `own`, and then finds itself the owner, reads
 * the right `others`.
 */
static void note_owner(unsigned n, pid_t owner)
{
	uint32_t handled = events[n].handled;

	if (owner != atomic_load(&events[n].owner)) {
		atomic_store(&events[n].owner, 0);
		atomic_store(&events[n].others, handled - 1);
		atomic_store(&events[n].owner, owner);
	}
	if (!owner)
		return;
	atomic_store(&events[n].own, handled);
	wake_waiters(n);
}

static void note_gone(unsigned n, const struct discarder *by)
{
	struct pin_gone gone = {.n = n,
				.what = atomic_load(&events[n].what),
				.from = atomic_load(&events[n].from),
				.to = atomic_load(&events[n].to),
				.moved_to = atomic_load(&events[n].moved_to)};
	uint64_t again = 0;

	/* Unmapped pages are gone before their message comes. */
	if (gone.what == UFFD_EVENT_UNMAP)
		note_owner(n, atomic_load(&events[n].owner));
	else
		note_owner(n, gone.what == UFFD_EVENT_REMOVE ? discarder_of(by, &gone) : 0);
	pin_gone_add(gone, &again);
	pin_watch_notify_again(again);
}

static void notify_descriptor(unsigned n)
{
	if (n == PIN_UFFD_HEAP)
		notify_heap();
	notify_foreign(n);
}

/*
 * The call returned before the listeners were notified. Memory that was registered meanwhile,
 * while its pages were about to go, is notified again when they are gone.
 */
static void note_late(unsigned n)
{
	atomic_fetch_add(&pin_watched.late, 1);
	late_descriptors |= (uint64_t)1 << n;
}

static void handle_message(unsigned n)
{
	const struct pin_watch_heap *its = atomic_load(&heap_callbacks);
	struct discarder by = {.thread = atomic_load(&events[n].caller),
			       .from = atomic_load(&events[n].caller_from),
			       .to = atomic_load(&events[n].caller_to)};
	bool is_late;

	events[n].handled = atomic_load(&events[n].ticket);
	notify_descriptor(n);
	/* If the message was read before, the recorded caller may be that of a later one. */
	is_late = !pin_uffd_read(n, events[n].handled);
	if (is_late)
		by.thread = 0;
	note_gone(n, &by);
	if (is_late)
		note_late(n);
	if (n == PIN_UFFD_HEAP && its)
		its->log_withdrawn();
}

/*
 * Settles the messages whose pages are gone, and wakes registrations that wait for them.
 * Returns how many are left.
 */
static unsigned settle_answered(uint64_t handled)
{
	uint64_t again = 0;
	unsigned n_left = pin_gone_retry(&again);

	pin_watch_notify_again(again);
	for (; handled; handled &= handled - 1) {
		unsigned n = (unsigned)__builtin_ctzll(handled);

		if (atomic_load(&events[n].settled) == events[n].handled ||
		    pin_gone_is_awaited(n))
			continue;
		if (late_descriptors & (uint64_t)1 << n)
			notify_descriptor(n);
		late_descriptors &= ~((uint64_t)1 << n);
		atomic_store(&events[n].settled, events[n].handled);
		wake_waiters(n);
	}
	return n_left;
}

static void *run_notifier(void *arg)
{
	uint64_t handled = 0;

	(void)arg;
	for (;;) {
		uint32_t seen = atomic_load(&n_wakeups);
		uint64_t woken = atomic_exchange(&to_notify, 0);
		uint64_t again = atomic_exchange(&to_notify_again, 0);

		for (; again; again &= again - 1)
			notify_descriptor((unsigned)__builtin_ctzll(again));
		handled |= woken;
		for (; woken; woken &= woken - 1)
			handle_message((unsigned)__builtin_ctzll(woken));
		if (settle_answered(handled))
			pin_os_wait_ms(&n_wakeups, seen, 1);
		else
			pin_os_wait(&n_wakeups, seen);
	}
	return NULL;
}

/* --- in any thread --------------------------------------------------------------- */

/*
 * hugetlb pages are mapped over the reservation as the heap grows. If the reservation were
 * watched, each growth would wait for the threads here, under jemalloc's locks, which they may
 * need themselves.
 */
static bool is_watched_by_range(void)
{
	return pin_options.huge == PIN_HUGE_TLB;
}

static int start_threads(void)
{
	int error = pin_uffd_start(&uffd_callbacks);

	if (!error)
		error = pin_thread_start(run_notifier, NULL, "pinalloc-tell");
	if (!error && !is_watched_by_range())
		error = -pin_uffd_watch(PIN_UFFD_HEAP, pin_reserve.base, pin_reserve.size);
	return error;
}

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

/* Also if another thread was just about to start watching. */
static void reset_in_child(void)
{
	pthread_mutex_init(&start_lock, NULL);
	atomic_store(&watch_state, UNKNOWN);
	atomic_store(&pin_watch_pending, 0);
	atomic_store(&to_notify, 0);
	atomic_store(&to_notify_again, 0);
	atomic_store(&notifying_since_ns, 0);
	late_descriptors = 0;
	memset(events, 0, sizeof events);
	memset(&pin_watched, 0, sizeof pin_watched);
	pin_uffd_reset();
	pin_books_reset();
	pin_gone_reset();
}

static void install_fork_handler(void)
{
	pthread_atfork(NULL, NULL, reset_in_child);
}

static int start_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int error;

	if (!pin_options.watch)
		return OFF;
	pthread_once(&once, install_fork_handler);
	error = start_threads();
	if (error)
		warn_unwatchable(error);
	return error ? OFF : ON;
}

bool pin_watch_start(const struct pin_watch_heap *its)
{
	if (its)
		atomic_store(&heap_callbacks, its);
	if (PIN_UNLIKELY(atomic_load(&watch_state) == UNKNOWN)) {
		pthread_mutex_lock(&start_lock);
		if (atomic_load(&watch_state) == UNKNOWN)
			atomic_store(&watch_state, start_once());
		pthread_mutex_unlock(&start_lock);
	}
	return pin_watch_is_on();
}

void pin_watch_subscribe(pin_watch_listener *its)
{
	atomic_store(&listener, its);
}

bool pin_watch_is_on(void)
{
	return atomic_load_explicit(&watch_state, memory_order_acquire) == ON;
}

void pin_watch_range(struct pin_range range)
{
	int error = is_watched_by_range() && pin_watch_is_on()
			    ? -pin_uffd_watch(PIN_UFFD_HEAP, range.start,
					      pin_range_length(range))
			    : 0;

	if (error)
		warn_unwatchable(error);
}

bool pin_watch_covers(const void *addr, size_t length)
{
	return pin_watch_is_on() &&
	       (pin_reserve_contains(addr) || pin_books_cover(pin_pages_of(addr, length)));
}

/* Whether the messages up to `ticket` are either settled or about the caller's own discards. */
static bool is_own_discard(unsigned n, uint32_t ticket, pid_t caller)
{
	return atomic_load(&events[n].own) == ticket &&
	       atomic_load(&events[n].owner) == caller &&
	       (int32_t)(atomic_load(&events[n].settled) - atomic_load(&events[n].others)) >= 0;
}

static bool is_settled(unsigned n, uint32_t ticket, pid_t caller)
{
	return (int32_t)(atomic_load(&events[n].settled) - ticket) >= 0 ||
	       is_own_discard(n, ticket, caller);
}

static PIN_COLD void await_settled(unsigned n, uint32_t ticket, pid_t caller)
{
	uint32_t seen = atomic_load(&events[n].changes);

	while (!is_settled(n, ticket, caller) && !is_stuck()) {
		pin_os_wait_ms(&events[n].changes, seen, PIN_UFFD_TIMEOUT_MS / 4);
		seen = atomic_load(&events[n].changes);
	}
}

void pin_watch_notify_again(uint64_t descriptors)
{
	if (!descriptors)
		return;
	atomic_fetch_or(&to_notify_again, descriptors);
	atomic_fetch_add(&n_wakeups, 1);
	pin_os_wake(&n_wakeups);
}

uint32_t pin_watch_generation(void)
{
	return atomic_load(&n_wakeups);
}

uint64_t pin_watch_await_quiet(uint64_t descriptors, pid_t caller)
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

bool pin_watch_stayed_quiet(uint64_t descriptors, uint64_t ticket)
{
	uint64_t sum = 0;

	for (; descriptors; descriptors &= descriptors - 1)
		sum += atomic_load(&events[__builtin_ctzll(descriptors)].ticket);
	return sum == ticket;
}

/* A forked child has no thread that would reset it, and no registrations either. */
PIN_COLD void pin_watch_await_pending(void)
{
	while (atomic_load(&pin_watch_pending) && !pin_pool_off())
		pin_os_wait(&pin_watch_pending, 1);
}
