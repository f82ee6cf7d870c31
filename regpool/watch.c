/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/watch.h"
#include "allocator/hooks.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "regpool/state.h"
#include "regpool/threads.h"
#include "regpool/uffd.h"

#include <errno.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct pin_watched pin_watched;
_Atomic uint32_t pin_watch_arrived[PIN_WATCHES], pin_watch_settled[PIN_WATCHES];
_Atomic uint32_t pin_watch_pending;

/* The process whose memory is watched. A forked child has no threads that do so. */
static pid_t owner;
static _Atomic bool is_on;

/* Of threads with a descriptor table of their own. */
static struct pollfd descriptors[PIN_WATCHES];
static _Atomic int failure; /* an errno value: nothing can be watched, or no more */
static _Atomic uint32_t is_started;

/* What a thread asks for, of which only one at a time may. */
static pthread_mutex_t request_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned request_n;
static struct pin_range request_pages;
static int request_result;
static _Atomic uint32_t is_requested;

/* The message that waits to be read, and how much of the heap has lost its keys by it. */
enum { NONE, WAITS, TOLD };
static _Atomic uint32_t stage;
static unsigned waiting;
static struct uffd_msg message;
static struct pin_range replaced;
static size_t n_withdrawn;

/* The notifying thread sleeps on this. */
static _Atomic uint32_t n_wakeups;
static _Atomic bool is_to_notify;

static void set(_Atomic uint32_t *word, uint32_t value)
{
	atomic_store(word, value);
	pin_os_wake(word);
}

static void await_change(_Atomic uint32_t *word, uint32_t from)
{
	while (atomic_load(word) == from)
		pin_os_wait(word, from);
}

static void wake_notifier(void)
{
	atomic_fetch_add(&n_wakeups, 1);
	pin_os_wake(&n_wakeups);
}

/* --- in the thread that begins watches ------------------------------------------- */

/*
 * Write-protection mode, in which only pages that were protected fault, and none is. The other
 * modes would intercept the first access to new pages.
 */
static int register_pages(int fd, uintptr_t start, uintptr_t end)
{
	struct uffdio_register range = {
		.range = {.start = start, .len = end - start},
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	return ioctl(fd, UFFDIO_REGISTER, &range) ? -errno : 0;
}

/*
 * hugetlbfs pages can only be watched whole, even if a registration covers a part. That is not
 * tried around unmapped pages, where any other mapping may be. The kernel accepts a range with
 * holes, but does not watch what is mapped into them later.
 */
static int register_whole_pages(int fd, uintptr_t start, uintptr_t end)
{
	static const size_t sizes[] = {PIN_GRANULE, PIN_GIB};
	int error = register_pages(fd, start, end);

	/* What was mapped into a hole between these calls is watched by the third. */
	if ((!error || error == -EINVAL) && !pin_os_is_mapped((void *)start, end - start))
		return -EFAULT;
	if (error != -EINVAL)
		return error ? error : register_pages(fd, start, end);
	for (size_t i = 0; error && i < PIN_ARRAY_SIZE(sizes); i++)
		error = register_pages(fd, PIN_ALIGN_DOWN(start, sizes[i]),
				       PIN_ALIGN_UP(end, sizes[i]));
	return error ? -EINVAL : 0;
}

static void *serve_requests(void *arg)
{
	for (;;) {
		await_change(&is_requested, false);
		request_result = register_whole_pages(descriptors[request_n].fd,
						      request_pages.start, request_pages.end);
		set(&is_requested, false);
	}
	return arg;
}

/* --- in the thread that waits for messages --------------------------------------- */

/* A copy of the table would keep the program's descriptors open. */
static int set_up(void)
{
	if (close_range(0, ~0u, CLOSE_RANGE_UNSHARE))
		return errno;
	for (unsigned n = 0; n < PIN_WATCHES; n++) {
		struct uffdio_api api = {.api = UFFD_API, .features = PIN_UFFD_EVENTS};

		descriptors[n] = (struct pollfd){.fd = pin_uffd_open(), .events = POLLIN};
		if (descriptors[n].fd < 0 || ioctl(descriptors[n].fd, UFFDIO_API, &api))
			return errno;
	}
	return pin_thread_start(serve_requests, NULL, "pinalloc-range");
}

static int read_message(unsigned n)
{
	ssize_t n_read = failure ? 0 : read(descriptors[n].fd, &message, sizeof message);

	if (n_read != sizeof message)
		return failure ? failure : errno;
	replaced = (struct pin_range){message.arg.remove.start, message.arg.remove.end};
	if (message.event == UFFD_EVENT_REMAP)
		replaced.end = replaced.start + message.arg.remap.len;
	return 0;
}

/*
 * The first count comes before anything else, so that all that follows the call sees it.
 * Look-ups wait from before the call returns until the keys are withdrawn.
 */
static void handle_message(unsigned n)
{
	int error;

	atomic_fetch_add(&pin_watch_arrived[n], 1);
	waiting = n;
	atomic_store(&stage, WAITS);
	wake_notifier();
	await_change(&stage, WAITS);
	atomic_store(&pin_watch_pending, n == PIN_WATCH_HEAP);
	error = read_message(n);
	if (!error && n == PIN_WATCH_HEAP)
		n_withdrawn = pin_hooks.withdraw_keys(replaced.start,
						      pin_range_length(replaced));
	else if (!error)
		pin_hook(settle_foreign, replaced, message.event == UFFD_EVENT_REMOVE);
	set(&pin_watch_pending, false);
	if (error && error != EAGAIN) {
		failure = error;
		atomic_store(&is_on, false);
	}
	atomic_fetch_add(&pin_watch_settled[n], 1);
	atomic_fetch_add(&pin_watched.events, 1);
	set(&stage, NONE);
}

/*
 * If messages cannot be read any more, calls that sleep are woken; they would for ever.
 * Listeners are notified before. Threads of the library do not end.
 */
static void *run_reader(void *arg)
{
	bool is_set_up;

	failure = set_up();
	is_set_up = !failure;
	set(&is_started, true);
	while (!failure) {
		if (poll(descriptors, PIN_WATCHES, -1) < 0 && errno != EINTR)
			failure = errno;
		for (unsigned n = 0; n < PIN_WATCHES && !failure; n++)
			if (descriptors[n].revents)
				handle_message(n);
	}
	for (unsigned n = 0; n < PIN_WATCHES && is_set_up; n++)
		handle_message(n);
	for (unsigned n = 0; n < PIN_WATCHES && is_set_up; n++)
		close(descriptors[n].fd);
	await_change(&is_started, true);
	return arg;
}

/* --- in the notifying thread ----------------------------------------------------- */

static void warn_unwatchable(int error)
{
	const char *what = error == EAGAIN ? "a thread cannot be started" : "userfaultfd";
	const char *cure = error == EAGAIN   ? "raise ulimit -u or pids.max"
			   : error == EINVAL ? "use a newer kernel"
					     : "allow the system call";

	pin_warn_once("memory that the program replaces is not noticed: %s: %s; an MPI library "
		      "may send stale data from it; %s, or set PINALLOC_WATCH=off",
		      what, strerrordesc_np(error), cure);
}

/* No kernel gives a program higher addresses. In the first page nothing can be mapped. */
#define LAST_ADDRESS ((uintptr_t)1 << 57)

static void notify(unsigned n)
{
	uintptr_t heap_end = pin_reserve.base + pin_reserve.size;

	if (n == PIN_WATCH_HEAP) {
		pin_hook(notify_caches, pin_reserve.base, pin_reserve.size);
	} else {
		pin_hook(notify_caches, PIN_PAGE, pin_reserve.base - PIN_PAGE);
		pin_hook(notify_caches, heap_end, LAST_ADDRESS - heap_end);
	}
}

static void notify_of_message(void)
{
	n_withdrawn = 0;
	notify(waiting);
	set(&stage, TOLD);
	await_change(&stage, TOLD);
	if (n_withdrawn)
		pin_warn_once("the program has replaced pages of its heap behind malloc, %s at "
			      "%p: requests in the %s around them go to libibverbs from now on",
			      PIN_SIZE(replaced.end - replaced.start), (void *)replaced.start,
			      PIN_SIZE(n_withdrawn));
	if (failure)
		warn_unwatchable(failure);
}

static void *run_notifier(void *arg)
{
	for (;;) {
		uint32_t seen = atomic_load(&n_wakeups);

		if (atomic_exchange(&is_to_notify, false))
			for (unsigned n = 0; n < PIN_WATCHES; n++)
				notify(n);
		if (atomic_load(&stage) == WAITS)
			notify_of_message();
		pin_os_wait(&n_wakeups, seen);
	}
	return arg;
}

/* --- in any thread --------------------------------------------------------------- */

int pin_watch_pages(unsigned n, struct pin_range pages)
{
	int result;

	/* A child may not know that it is one, if libc did not fork it. */
	if (getpid() != owner)
		return -ECHILD;
	pthread_mutex_lock(&request_lock);
	request_n = n;
	request_pages = pages;
	set(&is_requested, true);
	await_change(&is_requested, true);
	result = request_result;
	pthread_mutex_unlock(&request_lock);
	return result;
}

/*
 * Parts that cannot be watched, because the program has mapped a file over them or watches them
 * itself, count as replaced.
 */
static int watch_heap(uintptr_t start, size_t length)
{
	int error = pin_watch_pages(PIN_WATCH_HEAP, (struct pin_range){start, start + length});
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

void pin_watch_reset(void)
{
	atomic_store(&is_on, false);
	atomic_store(&pin_watch_pending, false);
	for (unsigned n = 0; owner && n < PIN_WATCHES; n++)
		pin_watch_arrived[n] = pin_watch_settled[n] + 1;
}

static void start(void)
{
	int error;

	owner = getpid();
	error = pin_thread_start(run_reader, NULL, "pinalloc-watch");
	if (!error)
		await_change(&is_started, false);
	error = error ? error : failure;
	if (!error)
		error = pin_thread_start(run_notifier, NULL, "pinalloc-tell");
	if (!error && pin_options.huge != PIN_HUGE_TLB)
		error = -watch_heap(pin_reserve.base, pin_reserve.size);
	atomic_store(&is_on, !error);
	if (error)
		warn_unwatchable(error);
}

bool pin_watch_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (pin_options.watch)
		pthread_once(&once, start);
	return pin_watch_is_on();
}

bool pin_watch_is_on(void)
{
	return atomic_load_explicit(&is_on, memory_order_acquire);
}

/*
 * hugetlb pages are mapped over the reservation as the heap grows. If the reservation were
 * watched, each growth would wait for the threads here, under jemalloc's locks, which they may
 * need themselves.
 */
void pin_watch_range(struct pin_range range)
{
	if (pin_options.huge == PIN_HUGE_TLB && pin_watch_is_on() &&
	    pin_watch_pages(PIN_WATCH_HEAP, (struct pin_range){range.start, range.end}))
		warn_unwatchable(EFAULT);
}

void pin_watch_notify(void)
{
	atomic_store(&is_to_notify, true);
	wake_notifier();
}

/* A forked child has no thread that would reset it, and no registrations either. */
PIN_COLD void pin_watch_await_pending(void)
{
	while (atomic_load(&pin_watch_pending) && !pin_state_off())
		pin_os_wait(&pin_watch_pending, true);
}
