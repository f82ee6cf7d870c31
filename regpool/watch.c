/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/watch.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "regpool/callers.h"
#include "regpool/pool.h"
#include "regpool/thread.h"
#include "regpool/uffd.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

struct pin_watched pin_watched;
_Atomic uint32_t pin_watch_pending, pin_watch_heap_messages;

enum { UNKNOWN, ON, OFF };
static _Atomic int watch_state;
static pin_watch_withdraw *_Atomic withdraw_keys;
static pin_watch_listener *_Atomic listener;

/*
 * Descriptors whose listeners are to be notified, one bit each, and the futex that the
 * notifying thread sleeps on.
 */
static _Atomic uint64_t to_notify, to_notify_again;
static _Atomic uint32_t n_wakeups;

static _Atomic pid_t notifier; /* thread id */

/* --- in the userfaultfd thread --------------------------------------------------- */

static void wake_notifier(void)
{
	atomic_fetch_add(&n_wakeups, 1);
	pin_os_wake(&n_wakeups);
}

/* The program's call returns after this, so the counts are visible to all that follows it. */
static void message_waits(unsigned n)
{
	if (n == PIN_UFFD_HEAP)
		atomic_fetch_add(&pin_watch_heap_messages, 1);
	pin_ranges_note_message(n);
	atomic_fetch_or(&to_notify, (uint64_t)1 << n);
	wake_notifier();
}

/* Of the looks at waiting messages, the one after which a line says that there are some. */
#define PATIENCE 10

static void still_waits(void)
{
	static unsigned n_looks;
	pid_t owner = pin_callers_behind(atomic_load(&notifier));

	if (!owner && ++n_looks != PATIENCE)
		return;
	pin_uffd_borrow_stderr();
	if (owner)
		pin_fatal("a registration cache cannot be notified of pages that thread %d "
			  "replaces, because it waits for a lock of that thread: the program "
			  "would wait for ever, or send stale data; set PINALLOC_WATCH=off",
			  owner);
	pin_warn("a call that replaces registered pages has waited for %d s until a "
		 "registration cache has been notified",
		 PATIENCE * PIN_UFFD_LOOK_MS / 1000);
}

static void warn_unwatchable(int error)
{
	const char *what = "userfaultfd", *cure = "allow the system call";

	if (error == EINVAL) {
		cure = "use a newer kernel";
	} else if (error == EMFILE || error == ENFILE) {
		cure = "raise ulimit -n or fs.file-max";
	} else if (error == EAGAIN) {
		what = "a thread cannot be started";
		cure = "raise ulimit -u or pids.max";
	}
	pin_warn_once("memory that the program replaces is not noticed: %s: %s; an MPI library "
		      "may send stale data from it; %s, or set PINALLOC_WATCH=off",
		      what, strerrordesc_np(error), cure);
}

static void watch_failed(int error)
{
	atomic_store(&watch_state, OFF);
	warn_unwatchable(error);
}

static const struct pin_uffd_callbacks uffd_callbacks = {message_waits, still_waits,
							 watch_failed};

/* --- in the notifying thread ----------------------------------------------------- */

static void notify_range(uintptr_t start, size_t length)
{
	pin_watch_listener *its = atomic_load(&listener);

	atomic_fetch_add(&pin_watched.told, 1);
	if (its)
		its(start, length);
}

static void notify_heap(void)
{
	for (uint32_t i = 0; i < pin_span_count(); i++) {
		struct pin_range range = pin_range_of_span(pin_span_get(i));

		notify_range(range.start, pin_range_length(range));
	}
}

/* Without the lock of the ranges: listeners deregister. */
static void notify_descriptor(unsigned n)
{
	struct pin_pages ranges[64];
	size_t from = 0, found;

	if (n == PIN_UFFD_HEAP)
		notify_heap();
	while ((found = pin_ranges_list(n, &from, ranges, PIN_ARRAY_SIZE(ranges))))
		for (size_t i = 0; i < found; i++)
			notify_range(ranges[i].start, ranges[i].end - ranges[i].start);
}

/* Before any domain is armed it is remembered for later registrations. */
static size_t withdraw(struct pin_pages pages)
{
	pin_watch_withdraw *its = atomic_load(&withdraw_keys);

	if (its)
		return its(pages.start, pages.end - pages.start);
	pin_granules_mark_replaced(pages.start, pages.end - pages.start);
	return 0;
}

static void warn_withdrawn(struct pin_pages pages, size_t n_bytes)
{
	pin_warn_once("the program has replaced pages of its heap behind malloc, %s at "
		      "%p: requests in the %s around them go to libibverbs from now on",
		      PIN_SIZE(pages.end - pages.start), (void *)pages.start,
		      PIN_SIZE(n_bytes));
}

/* Look-ups wait from before the call returns until the keys are withdrawn. */
static bool read_of_heap(struct uffd_msg *message)
{
	struct pin_pages pages = {0, 0};
	size_t n_bytes = 0;
	bool is_read;

	atomic_store(&pin_watch_pending, 1);
	is_read = pin_uffd_read(PIN_UFFD_HEAP, message);
	if (is_read) {
		pages = pin_ranges_of_message(message);
		n_bytes = withdraw(pages);
	}
	atomic_store(&pin_watch_pending, 0);
	pin_os_wake(&pin_watch_pending);
	atomic_fetch_sub(&pin_watch_heap_messages, 1);
	if (n_bytes)
		warn_withdrawn(pages, n_bytes);
	return is_read;
}

static void handle_message(unsigned n)
{
	struct uffd_msg message;
	bool is_read;

	notify_descriptor(n);
	is_read = n == PIN_UFFD_HEAP ? read_of_heap(&message) : pin_uffd_read(n, &message);
	pin_ranges_settle(n, is_read ? &message : NULL);
	atomic_fetch_add(&pin_watched.events, 1);
}

static void *run_notifier(void *arg)
{
	atomic_store(&notifier, gettid());
	for (;;) {
		uint32_t seen = atomic_load(&n_wakeups);
		uint64_t woken = atomic_exchange(&to_notify, 0);
		uint64_t again = atomic_exchange(&to_notify_again, 0);

		for (; again; again &= again - 1)
			notify_descriptor((unsigned)__builtin_ctzll(again));
		for (; woken; woken &= woken - 1)
			handle_message((unsigned)__builtin_ctzll(woken));
		pin_os_wait(&n_wakeups, seen);
	}
	return arg;
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

/*
 * Parts that cannot be watched, because the program has mapped a file over them or watches them
 * itself, count as replaced.
 */
static int watch_heap(uintptr_t start, size_t length)
{
	int error = pin_uffd_watch(PIN_UFFD_HEAP, start, length);
	size_t half = length / 2 / PIN_GRANULE * PIN_GRANULE;

	if (error != -EINVAL && error != -EBUSY)
		return error;
	if (!half) {
		pin_granules_mark_replaced(start, length);
		return 0;
	}
	error = watch_heap(start, half);
	return error ? error : watch_heap(start + half, length - half);
}

static int start_threads(void)
{
	int error = pin_uffd_start(&uffd_callbacks);

	if (!error)
		error = pin_thread_start(run_notifier, NULL, "pinalloc-tell");
	if (!error && !is_watched_by_range())
		error = -watch_heap(pin_reserve.base, pin_reserve.size);
	return error;
}

static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

/* Also if another thread was just about to start watching. */
static void reset_in_child(void)
{
	pthread_mutex_init(&start_lock, NULL);
	atomic_store(&watch_state, UNKNOWN);
	atomic_store(&pin_watch_pending, 0);
	atomic_store(&pin_watch_heap_messages, 0);
	atomic_store(&to_notify, 0);
	atomic_store(&to_notify_again, 0);
	memset(&pin_watched, 0, sizeof pin_watched);
	pin_uffd_reset();
	pin_ranges_reset();
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

bool pin_watch_start(pin_watch_withdraw *its)
{
	if (its)
		atomic_store(&withdraw_keys, its);
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

int pin_watch_pages(struct pin_pages range, bool is_late, struct pin_ticket *ticket)
{
	return pin_watch_start(NULL) ? pin_ranges_watch(range, is_late, ticket) : -ENOSYS;
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

void pin_watch_notify_again(unsigned n)
{
	atomic_fetch_or(&to_notify_again, (uint64_t)1 << n);
	wake_notifier();
}

/* A forked child has no thread that would reset it, and no registrations either. */
PIN_COLD void pin_watch_await_pending(void)
{
	while (atomic_load(&pin_watch_pending) && !pin_pool_off())
		pin_os_wait(&pin_watch_pending, 1);
}
