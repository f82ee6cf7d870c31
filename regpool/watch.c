/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/watch.h"
#include "allocator/hooks.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/reserve.h"
#include "regpool/granule.h"
#include "regpool/threads.h"

#include <linux/close_range.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>

struct pin_watched pin_watched;
_Atomic uint32_t pin_watch_arrived[PIN_WATCHES], pin_watch_settled[PIN_WATCHES];
_Atomic uint32_t pin_watch_pending;

/* The process whose memory is watched. A forked child has no threads that do so. */
static _Atomic pid_t owner;
static _Atomic bool is_on;

/* Of threads with a descriptor table of their own. */
static struct pollfd descriptors[PIN_WATCHES];
static _Atomic bool has_ended; /* messages cannot be read any more */
static _Atomic int failure;    /* an errno value: why nothing is watched */
static const char *_Atomic failed = "PINALLOC_WATCH"; /* what has returned it */

static struct pin_mutex start_lock = {.rank = PIN_RANK_OUTER};
static bool has_server; /* the last that is started */

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
	struct pin_mutex lock;
	struct turn turn;
	enum pin_watch_kind kind;
	struct pin_range pages;
	int result;
} request = {.lock = {.rank = PIN_RANK_INNER}, .turn = {ASKER}};

/* Of the reader, which sleeps in poll(), and the notifier, which sleeps on `todo`. */
static struct {
	struct turn turn;
	enum pin_watch_kind kind;
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

#define NO_THREAD "a thread cannot be started"

/*
 * A copy of the table would keep the program's descriptors open. May be repeated after a
 * failure: the last step is the one after which the table has a second thread.
 */
static int set_up(void)
{
	failed = "close_range";
	if (close_range(0, ~0u, CLOSE_RANGE_UNSHARE))
		return errno;
	for (unsigned kind = 0; kind < PIN_WATCHES; kind++) {
		struct uffdio_api api = {.api = UFFD_API, .features = PIN_UFFD_FEATURES};

		failed = "userfaultfd";
		descriptors[kind] = (struct pollfd){.fd = pin_uffd_open(), .events = POLLIN};
		if (descriptors[kind].fd < 0)
			return errno;
		failed = "UFFDIO_API";
		if (ioctl(descriptors[kind].fd, UFFDIO_API, &api))
			return errno;
		/* Without a word, where the processor's pages cannot be write-protected. */
		if (~api.features & PIN_UFFD_FEATURES)
			return EINVAL;
	}
	failed = NO_THREAD;
	return pin_thread_start(&has_server, serve_requests, NULL, "pinalloc-range");
}

static struct pin_range pages_of(const struct uffd_msg *text)
{
	uintptr_t start = text->arg.remove.start;

	return (struct pin_range){start, text->event == UFFD_EVENT_REMAP
						 ? start + text->arg.remap.len
						 : text->arg.remove.end};
}

static struct pin_range whole_heap(void)
{
	return (struct pin_range){pin_reserve.base, pin_reserve.base + pin_reserve.size};
}

/* Nothing tells any more which pages are replaced: with strict all are as if they were. */
static void end_watch(int error)
{
	failed = "userfaultfd";
	failure = error;
	has_ended = true;
	atomic_store(&is_on, false);
	if (pin_options.watch == PIN_WATCH_STRICT)
		pin_hooks.withdraw_keys(whole_heap(), true);
}

/*
 * The first count comes before anything else, so that all that follows the call sees it.
 * Look-ups wait from before the call returns until the keys are withdrawn.
 */
static void handle_message(enum pin_watch_kind kind)
{
	struct uffd_msg text;

	atomic_fetch_add(&pin_watch_arrived[kind], 1);
	message.kind = kind;
	give_notifier(MESSAGE);
	await_turn(&message.turn, READER);
	atomic_store(&pin_watch_pending, kind == PIN_WATCH_HEAP);
	if (read(descriptors[kind].fd, &text, sizeof text) != sizeof text) {
		if (errno != EAGAIN)
			end_watch(errno);
	} else {
		message.pages = pages_of(&text);
		if (kind == PIN_WATCH_HEAP)
			message.n_withdrawn = pin_hooks.withdraw_keys(message.pages, true);
		else
			pin_hook(settle_foreign, message.pages,
				 text.event == UFFD_EVENT_REMOVE);
	}
	atomic_store(&pin_watch_pending, false);
	pin_os_wake(&pin_watch_pending);
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
	int error;

	do {
		await_turn(arg, READER);
		failure = error = set_up();
		give_turn(arg, STARTER);
	} while (error);
	while (!has_ended) {
		if (poll(descriptors, PIN_WATCHES, -1) < 0 && errno != EINTR)
			end_watch(errno);
		for (unsigned kind = 0; kind < PIN_WATCHES && !has_ended; kind++)
			if (descriptors[kind].revents)
				handle_message(kind);
	}
	for (unsigned kind = 0; kind < PIN_WATCHES; kind++) {
		handle_message(kind);
		close(descriptors[kind].fd);
	}
	await_turn(arg, READER); /* nobody gives that: this thread sleeps for ever */
	return arg;
}

/* --- in the notifying thread ----------------------------------------------------- */

const char *pin_watch_why_not(char *text, size_t size)
{
	pin_format(text, size, "memory that the program replaces is not noticed: %s: %s; %s",
		   failed, failure ? strerrordesc_np(failure) : "off",
		   pin_options.watch == PIN_WATCH_STRICT
			   ? "no request is served from the heap"
			   : "if the program replaces heap pages behind malloc, even a new "
			     "registration reaches the old ones");
	return !failure		   ? "unset it"
	       : failure == EAGAIN ? "raise ulimit -u, ulimit -v or pids.max"
	       : failure == EMFILE ? "raise ulimit -n"
	       : failure == EPERM
		       ? "allow the system call, in a container by its seccomp profile"
		       : "use Linux 5.9 or newer, on arm64 6.10, or allow the call";
}

static void warn_unwatchable(void)
{
	char text[256];
	const char *cure = pin_watch_why_not(text, sizeof text);

	pin_warn_once("%s; %s%s", text, cure,
		      pin_options.watch == PIN_WATCH_STRICT
			      ? ""
			      : ", or set PINALLOC_WATCH=strict, which serves nothing there");
}

/* No kernel gives a program higher addresses. In the first page nothing can be mapped. */
#define LAST_ADDRESS ((uintptr_t)1 << 57)

static void notify(enum pin_watch_kind kind)
{
	struct pin_range heap = whole_heap();

	if (kind == PIN_WATCH_HEAP) {
		pin_hook(notify_caches, heap.start, pin_range_length(heap));
	} else {
		pin_hook(notify_caches, PIN_PAGE, heap.start - PIN_PAGE);
		pin_hook(notify_caches, heap.end, LAST_ADDRESS - heap.end);
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
	if (has_ended)
		warn_unwatchable();
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

	/* A child may not know that it is one, if libc did not fork it. */
	if (getpid() != owner)
		return -ECHILD;
	PIN_LOCKED(&request.lock);
	request.kind = kind;
	request.pages = pages;
	give_turn(&request.turn, SERVER);
	await_turn(&request.turn, ASKER);
	return request.result;
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
	start_lock.state = PIN_MUTEX_FREE;
	for (unsigned kind = 0; owner && kind < PIN_WATCHES; kind++)
		pin_watch_arrived[kind] = pin_watch_settled[kind] + 1;
}

/* What has been done stays: after a failure the rest is tried again. */
static int start(void)
{
	static struct turn turn = {STARTER};
	static bool has_notifier, has_reader;
	int error;

	failed = NO_THREAD;
	error = pin_thread_start(&has_notifier, run_notifier, NULL, "pinalloc-tell")
			?: pin_thread_start(&has_reader, run_reader, &turn, "pinalloc-watch");
	if (!error && !has_server) {
		give_turn(&turn, READER);
		await_turn(&turn, STARTER);
		error = failure;
	}
	if (!error && pin_options.huge != PIN_HUGE_TLB && pin_reserve.size) {
		failed = "UFFDIO_REGISTER";
		error = -watch_heap(pin_reserve.base, pin_reserve.size);
	}
	return error;
}

/* It is tried again each so many times, as limits may have been raised. */
#define TIMES_ASKED 256

/* What was registered before, or is in caches, may have been replaced unnoticed. */
bool pin_watch_start(void)
{
	static unsigned n_asked;

	if (pin_watch_is_on() || !pin_options.watch || (owner && owner != getpid()))
		return pin_watch_is_on();
	PIN_SHIELDED;
	PIN_LOCKED(&start_lock);
	owner = getpid();
	if (!pin_watch_is_on() && !has_ended && n_asked++ % TIMES_ASKED == 0) {
		failure = start();
		atomic_store(&is_on, !failure);
		if (failure)
			warn_unwatchable();
		else if (n_asked > 1) {
			pin_hooks.withdraw_keys(whole_heap(), false);
			pin_watch_notify();
		}
	}
	return pin_watch_is_on();
}

bool pin_watch_is_on(void)
{
	return atomic_load_explicit(&is_on, memory_order_acquire);
}

void pin_watch_notify(void)
{
	give_notifier(ALL);
}
