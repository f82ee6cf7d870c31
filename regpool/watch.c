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

#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>

struct pin_watched pin_watched;
_Atomic uint32_t pin_watch_arrived[PIN_WATCHES], pin_watch_settled[PIN_WATCHES];
_Atomic uint32_t pin_watch_pending;

/* The process whose memory is watched. A forked child has no threads that do so. */
static pid_t owner;
static _Atomic bool is_on;

/* Of threads with a descriptor table of their own. */
static struct pollfd descriptors[PIN_WATCHES];
static _Atomic int failure; /* an errno value: nothing can be watched, or no more */

/*
 * Threads take turns: who has it may touch what is beside it.
 *
 *     request   ASKER    which pages ─┐               ┌─ takes the result
 *               SERVER                └─ UFFDIO_REGISTER
 *
 *     message   READER   counts it ─┐         ┌─ reads it: the call returns; keys go ─┐
 *               NOTIFIER            └─ caches ┘                                 a line ┘
 */
enum { ASKER, SERVER, NOTIFIER, READER, STARTER };
struct turn {
	_Atomic uint32_t whose;
};

/* Of any thread, one at a time, and of the one that begins watches. */
static struct {
	pthread_mutex_t lock;
	struct turn turn;
	enum pin_watch_kind kind;
	struct pin_range pages;
	int result;
} request = {.lock = PTHREAD_MUTEX_INITIALIZER, .turn = {ASKER}};

/* Of the reader, which sleeps in poll(), and the notifier, which sleeps on `todo`. */
static struct {
	struct turn turn;
	enum pin_watch_kind kind;
	struct uffd_msg text;
	struct pin_range pages;
	size_t n_withdrawn; /* bytes of the heap that have lost their keys by it */
} message = {.turn = {NOTIFIER}};

enum { MESSAGE = 1, ALL = 2 };
static _Atomic uint32_t todo; /* of the notifier */

static void give_turn(struct turn *turn, uint32_t to)
{
	atomic_store(&turn->whose, to);
	pin_os_wake(&turn->whose);
}

static void await_turn(struct turn *turn, uint32_t me)
{
	uint32_t whose;

	while ((whose = atomic_load(&turn->whose)) != me)
		pin_os_wait(&turn->whose, whose);
}

static void give_notifier(uint32_t what)
{
	atomic_fetch_or(&todo, what);
	pin_os_wake(&todo);
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
		await_turn(&request.turn, SERVER);
		request.result = register_whole_pages(descriptors[request.kind].fd,
						      request.pages.start, request.pages.end);
		give_turn(&request.turn, ASKER);
	}
	return arg;
}

/* --- in the thread that waits for messages --------------------------------------- */

/* A copy of the table would keep the program's descriptors open. */
static int set_up(void)
{
	if (close_range(0, ~0u, CLOSE_RANGE_UNSHARE))
		return errno;
	for (unsigned kind = 0; kind < PIN_WATCHES; kind++) {
		struct uffdio_api api = {.api = UFFD_API, .features = PIN_UFFD_EVENTS};

		descriptors[kind] = (struct pollfd){.fd = pin_uffd_open(), .events = POLLIN};
		if (descriptors[kind].fd < 0 || ioctl(descriptors[kind].fd, UFFDIO_API, &api))
			return errno;
	}
	return pin_thread_start(serve_requests, NULL, "pinalloc-range");
}

static int read_message(int fd, struct uffd_msg *text, struct pin_range *pages)
{
	ssize_t n_read = failure ? 0 : read(fd, text, sizeof *text);

	if (n_read != sizeof *text)
		return failure ? failure : errno;
	*pages = (struct pin_range){text->arg.remove.start, text->arg.remove.end};
	if (text->event == UFFD_EVENT_REMAP)
		pages->end = pages->start + text->arg.remap.len;
	return 0;
}

/*
 * The first count comes before anything else, so that all that follows the call sees it.
 * Look-ups wait from before the call returns until the keys are withdrawn.
 */
static void handle_message(enum pin_watch_kind kind)
{
	int error;

	atomic_fetch_add(&pin_watch_arrived[kind], 1);
	message.kind = kind;
	give_notifier(MESSAGE);
	await_turn(&message.turn, READER);
	atomic_store(&pin_watch_pending, kind == PIN_WATCH_HEAP);
	error = read_message(descriptors[kind].fd, &message.text, &message.pages);
	if (!error && kind == PIN_WATCH_HEAP)
		message.n_withdrawn = pin_hooks.withdraw_keys(message.pages.start,
							      pin_range_length(message.pages));
	else if (!error)
		pin_hook(settle_foreign, message.pages,
			 message.text.event == UFFD_EVENT_REMOVE);
	atomic_store(&pin_watch_pending, false);
	pin_os_wake(&pin_watch_pending);
	if (error && error != EAGAIN) {
		failure = error;
		atomic_store(&is_on, false);
	}
	atomic_fetch_add(&pin_watch_settled[kind], 1);
	atomic_fetch_add(&pin_watched.events, 1);
	give_turn(&message.turn, NOTIFIER);
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
	give_turn(arg, STARTER);
	while (!failure) {
		if (poll(descriptors, PIN_WATCHES, -1) < 0 && errno != EINTR)
			failure = errno;
		for (unsigned kind = 0; kind < PIN_WATCHES && !failure; kind++)
			if (descriptors[kind].revents)
				handle_message(kind);
	}
	for (unsigned kind = 0; kind < PIN_WATCHES && is_set_up; kind++) {
		handle_message(kind);
		close(descriptors[kind].fd);
	}
	await_turn(arg, READER);
	return arg;
}

/* --- in the notifying thread ----------------------------------------------------- */

static void warn_unwatchable(int error)
{
	const char *what = error == EAGAIN ? "a thread cannot be started" : "userfaultfd";
	const char *cure = error == EAGAIN   ? "raise ulimit -u, -v or pids.max"
			   : error == EINVAL ? "use a newer kernel"
					     : "allow the system call";

	pin_warn_once("memory that the program replaces is not noticed: %s: %s; an MPI library "
		      "may send stale data from it; %s, or set PINALLOC_WATCH=off",
		      what, strerrordesc_np(error), cure);
}

/* No kernel gives a program higher addresses. In the first page nothing can be mapped. */
#define LAST_ADDRESS ((uintptr_t)1 << 57)

static void notify(enum pin_watch_kind kind)
{
	uintptr_t heap_end = pin_reserve.base + pin_reserve.size;

	if (kind == PIN_WATCH_HEAP) {
		pin_hook(notify_caches, pin_reserve.base, pin_reserve.size);
	} else {
		pin_hook(notify_caches, PIN_PAGE, pin_reserve.base - PIN_PAGE);
		pin_hook(notify_caches, heap_end, LAST_ADDRESS - heap_end);
	}
}

static void notify_of_message(void)
{
	message.n_withdrawn = 0;
	notify(message.kind);
	give_turn(&message.turn, READER);
	await_turn(&message.turn, NOTIFIER);
	if (message.n_withdrawn)
		pin_warn_once("the program has replaced pages of its heap behind malloc, %s at "
			      "%p: requests in the %s around them go to libibverbs from now on",
			      PIN_SIZE(pin_range_length(message.pages)),
			      (void *)message.pages.start, PIN_SIZE(message.n_withdrawn));
	if (failure)
		warn_unwatchable(failure);
}

static void *run_notifier(void *arg)
{
	for (;;) {
		uint32_t seen = atomic_exchange(&todo, 0);

		for (unsigned kind = 0; kind < PIN_WATCHES && seen & ALL; kind++)
			notify(kind);
		if (seen & MESSAGE)
			notify_of_message();
		pin_os_wait(&todo, 0);
	}
	return arg;
}

/* --- in any thread --------------------------------------------------------------- */

int pin_watch_pages(enum pin_watch_kind kind, struct pin_range pages)
{
	PIN_SHIELDED;
	int result;

	/* A child may not know that it is one, if libc did not fork it. */
	if (getpid() != owner)
		return -ECHILD;
	pthread_mutex_lock(&request.lock);
	request.kind = kind;
	request.pages = pages;
	give_turn(&request.turn, SERVER);
	await_turn(&request.turn, ASKER);
	result = request.result;
	pthread_mutex_unlock(&request.lock);
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
	for (unsigned kind = 0; owner && kind < PIN_WATCHES; kind++)
		pin_watch_arrived[kind] = pin_watch_settled[kind] + 1;
}

/* In a child of a process that was just starting, glibc calls this again. */
static void start(void)
{
	static struct turn turn = {READER};
	int error;

	if (owner)
		return;
	owner = getpid();
	error = pin_thread_start(run_reader, &turn, "pinalloc-watch");
	if (!error)
		await_turn(&turn, STARTER);
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
	give_notifier(ALL);
}

PIN_COLD void pin_watch_await_pending(void)
{
	while (atomic_load(&pin_watch_pending))
		pin_os_wait(&pin_watch_pending, true);
}
