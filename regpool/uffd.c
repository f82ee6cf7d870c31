/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/uffd.h"
#include "allocator/frames.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "regpool/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2
#endif

/* A request to the thread, on the stack of the thread that sleeps for it. */
struct request {
	struct request *next;
	void (*perform)(struct request *);
	unsigned n;
	uint32_t ticket;
	uintptr_t start;
	size_t length;
	int result;
	_Atomic bool done;
};

static struct descriptor {
	int fd; /* file descriptor + 1; 0: not open */
	uint32_t ticket;
	bool waits; /* a message waits to be asked for, since: */
	uint64_t since_ns;
} descriptors[PIN_UFFDS];

static const struct pin_uffd_callbacks *callbacks;
static int events_fd, wake_fd, pagemap;
static _Atomic(struct request *) requests;
/*
 * A watched page that wakes the thread: discarding it makes a message, and the call returns
 * when the thread has read that. So other threads need no descriptor, which the program might
 * close or mistake for its own. The page behind it is not readable; see is_watched().
 */
static char *wake_page;

/* 0 while the thread starts. FAILED, with errno in `failure`, if it cannot start or continue.
 */
enum { STARTED = 1, FAILED };
static _Atomic uint32_t state;
static int failure;
static pid_t owner;

static int open_uffd(void)
{
	struct uffdio_api api = {.api = UFFD_API, .features = PIN_UFFD_EVENTS};
	int fd = pin_uffd_open(), error;

	if (fd < 0 || !ioctl(fd, UFFDIO_API, &api))
		return fd < 0 ? -errno : fd;
	error = errno;
	close(fd);
	return -error;
}

/*
 * Write-protection mode, in which only pages that were protected fault, and none is. The other
 * modes would intercept the first access to new pages.
 */
static int register_pages(int fd, uintptr_t start, size_t length)
{
	struct uffdio_register range = {
		.range = {.start = start, .len = length},
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	return ioctl(fd, UFFDIO_REGISTER, &range) ? -errno : 0;
}

/*
 * Before Linux 6.16 unregistering would end any descriptor's watch, as of a mapping the program
 * has put there since. A range that can be registered again belongs to no other descriptor.
 */
static int unregister_pages(int fd, uintptr_t start, size_t length)
{
	struct uffdio_range range = {.start = start, .len = length};

	if (register_pages(fd, start, length) == -EBUSY)
		return -EBUSY;
	return ioctl(fd, UFFDIO_UNREGISTER, &range) ? -errno : 0;
}

/* Reports one message only; the next is reported after the descriptor is armed again. */
static int arm_epoll(unsigned n, int how)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = n};

	return epoll_ctl(events_fd, how, descriptors[n].fd - 1, &event) ? -errno : 0;
}

static int open_descriptor(unsigned n)
{
	int fd = open_uffd(), error;

	if (fd < 0)
		return fd;
	descriptors[n].fd = fd + 1;
	error = arm_epoll(n, EPOLL_CTL_ADD);
	if (error) {
		descriptors[n].fd = 0;
		close(fd);
	}
	return error;
}

/* msync() fails if a page is not mapped. */
static bool is_mapped(uintptr_t start, size_t length)
{
	return !msync((void *)start, length, MS_ASYNC);
}

/*
 * hugetlbfs pages can only be watched whole, even if a registration covers a part. That is not
 * tried around unmapped pages, where any other mapping may be. The kernel accepts a range with
 * holes, but does not watch what is mapped into them later.
 */
static int register_whole_pages(int fd, uintptr_t start, size_t length)
{
	static const size_t sizes[] = {PIN_GRANULE, PIN_GIB};
	bool whole = is_mapped(start, length);
	int error = register_pages(fd, start, length);

	if (!whole && (!error || error == -EINVAL))
		return -EFAULT;
	for (size_t i = 0; error == -EINVAL && i < PIN_ARRAY_SIZE(sizes); i++) {
		uintptr_t first = PIN_ALIGN_DOWN(start, sizes[i]);

		error = register_pages(fd, first,
				       PIN_ALIGN_UP(start + length, sizes[i]) - first);
	}
	return error;
}

static void watch_pages(struct request *request)
{
	struct descriptor *its = &descriptors[request->n];

	request->result = its->fd ? 0 : open_descriptor(request->n);
	if (!request->result)
		request->result = register_whole_pages(its->fd - 1, request->start,
						       request->length);
}

/*
 * While a call is in progress the kernel refuses to change protection, before it looks at the
 * arguments (mmap_changing in userfaultfd_writeprotect(), fs/userfaultfd.c).
 */
static bool has_waiting_call(int fd)
{
	return ioctl(fd, UFFDIO_WRITEPROTECT, NULL) && errno == EAGAIN;
}

/*
 * Whether any descriptor watches a page. UFFDIO_COPY checks that before it reads its source
 * (mcopy_atomic() in mm/userfaultfd.c), which is unreadable, so nothing is changed.
 */
static bool is_watched(int fd, uintptr_t page)
{
	struct uffdio_copy copy = {
		.dst = page, .src = (uintptr_t)wake_page + PIN_PAGE, .len = PIN_PAGE};

	return ioctl(fd, UFFDIO_COPY, &copy) && errno != ENOENT;
}

/*
 * Other mappings that the program has put there since are left alone: otherwise one of its
 * calls could find them watched in part for a moment.
 */
static bool is_still_watched(int fd, uintptr_t start, size_t length)
{
	return is_watched(fd, start) || is_watched(fd, start + length - PIN_PAGE);
}

/*
 * A call about to discard pages may do so after the watch has ended, unknown to the next
 * descriptor that watches them. Checked again at the end, for calls that began meanwhile.
 */
static int end_watch(int fd, uintptr_t start, size_t length)
{
	int error = has_waiting_call(fd) ? -EAGAIN : 0;

	if (!error && is_still_watched(fd, start, length))
		error = unregister_pages(fd, start, length);
	return !error && has_waiting_call(fd) ? -EAGAIN : error;
}

/* The rest of a partly covered hugetlbfs page stays watched, which may cost a message later. */
static void unwatch_pages(struct request *request)
{
	uintptr_t start = PIN_ALIGN_UP(request->start, PIN_GRANULE);
	uintptr_t end = PIN_ALIGN_DOWN(request->start + request->length, PIN_GRANULE);
	int fd = descriptors[request->n].fd - 1, error;

	if (fd < 0)
		return;
	error = end_watch(fd, request->start, request->length);
	if (error == -EINVAL && start < end)
		error = end_watch(fd, start, end - start);
	request->result = error == -EAGAIN;
}

/* If reading fails the thread ends. That wakes the calls, which would sleep for ever. */
static bool try_read(int fd, struct uffd_msg *message)
{
	bool taken = read(fd, message, sizeof *message) == sizeof *message;

	if (!taken && errno != EAGAIN)
		failure = errno;
	return taken;
}

/* The kernel delivers messages in order. */
static void read_message(unsigned n)
{
	struct descriptor *its = &descriptors[n];
	struct uffd_msg message;
	bool taken;

	its->waits = false;
	callbacks->before_read(n);
	taken = try_read(its->fd - 1, &message);
	callbacks->after_read(n, taken ? &message : NULL);
	arm_epoll(n, EPOLL_CTL_MOD);
}

/* Messages read without being asked for, since one was last asked for. */
static unsigned n_overdue;

static void read_if_current(struct request *request)
{
	struct descriptor *its = &descriptors[request->n];

	n_overdue = 0;
	request->result = its->waits && its->ticket == request->ticket;
	if (request->result)
		read_message(request->n);
}

static void check_waiting_call(struct request *request)
{
	int fd = descriptors[request->n].fd - 1;

	request->result = fd >= 0 && has_waiting_call(fd);
}

static void check_shared_page(struct request *request)
{
	request->result = pin_frames_is_shared(pagemap, request->start);
}

static void perform_requests(void)
{
	struct request *request = atomic_exchange(&requests, NULL), *next;

	for (; request; request = next) {
		next = request->next;
		request->perform(request);
		/* From here on the request belongs to its sender. */
		atomic_store(&request->done, true);
	}
}

/* A sender queues its request before it wakes the thread. */
static void answer_wakeup(void)
{
	struct uffd_msg message;

	do {
		perform_requests();
	} while (try_read(wake_fd, &message));
}

/* Returns whether the thread was woken. Under mlockall() pages cannot be discarded. */
static bool wake_thread(void)
{
	bool rung = !syscall(SYS_madvise, wake_page, PIN_PAGE, MADV_DONTNEED);

	if (!rung)
		munlock(wake_page, PIN_PAGE);
	return rung;
}

/* More attempts than a running thread ever needs. */
#define WAKEUPS_BEFORE_CHECK 1000

/*
 * One wake-up may serve several requests. In a forked child the thread does not exist, which
 * the child may not know if libc did not fork it. After vfork() it does exist.
 */
static void send_request(struct request *request)
{
	request->next = atomic_load(&requests);
	while (!atomic_compare_exchange_weak(&requests, &request->next, request))
		;
	for (int i = 0; !atomic_load(&request->done) && atomic_load(&state) == STARTED; i++) {
		bool rung = wake_thread();

		if (i >= WAKEUPS_BEFORE_CHECK && getpid() != owner)
			pin_uffd_reset();
		else if (i >= WAKEUPS_BEFORE_CHECK && !rung)
			pin_fatal("the thread that watches memory cannot be called any more: "
				  "let the program call madvise, or set PINALLOC_WATCH=off");
	}
	if (atomic_load(&state) == FAILED)
		callbacks->failed(failure);
}

static void message_arrived(unsigned n)
{
	struct descriptor *its = &descriptors[n];

	its->waits = true;
	its->since_ns = pin_os_now_ns();
	callbacks->message_waits(n, ++its->ticket);
}

/*
 * A call may wait for one message of each descriptor, one after the other, while it holds the
 * lock that keeps this message from being asked for. Halving the timeout limits the sum to
 * about twice the first.
 */
static uint64_t timeout_ns(void)
{
	return PIN_UFFD_TIMEOUT_MS * 1000000ull >> (n_overdue < 7 ? n_overdue : 7);
}

#define RECHECK_NS 10000000ull

/* A thread that does not get the processor is not stuck, but must not block others for ever. */
static bool must_read_now(uint64_t waited_ns)
{
	return waited_ns >= PIN_UFFD_MAX_TIMEOUT_MS * 1000000ull || callbacks->is_stuck();
}

/* Reads overdue messages. Returns milliseconds until the next check, -1 if no message waits. */
static int read_overdue(void)
{
	uint64_t now = pin_os_now_ns(), timeout = timeout_ns();
	uint64_t least = UINT64_MAX;

	for (unsigned n = 0; n < PIN_UFFDS; n++) {
		struct descriptor *its = &descriptors[n];

		if (!its->waits)
			continue;
		if (now - its->since_ns >= timeout && must_read_now(now - its->since_ns)) {
			read_message(n);
			n_overdue++;
		} else if (now - its->since_ns >= timeout) {
			least = RECHECK_NS;
		} else if (its->since_ns + timeout - now < least) {
			least = its->since_ns + timeout - now;
		}
	}
	return least == UINT64_MAX ? -1 : (int)(least / 1000000) + 1;
}

#define WAKE_EVENT PIN_UFFDS

static void serve_events(void)
{
	struct epoll_event events[8];

	while (!failure) {
		int n = epoll_wait(events_fd, events, PIN_ARRAY_SIZE(events), read_overdue());

		for (int i = 0; i < n; i++) {
			if (events[i].data.u32 == WAKE_EVENT)
				answer_wakeup();
			else
				message_arrived(events[i].data.u32);
		}
	}
}

static int watch_wake_page(void)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = WAKE_EVENT};
	int error;

	wake_fd = open_uffd();
	if (wake_fd < 0)
		return -wake_fd;
	error = -register_pages(wake_fd, (uintptr_t)wake_page, PIN_PAGE);
	if (!error && epoll_ctl(events_fd, EPOLL_CTL_ADD, wake_fd, &event))
		error = errno;
	return error;
}

/* A copy of the table would keep the program's descriptors open. */
static int set_up(void)
{
	if (close_range(0, ~0u, CLOSE_RANGE_UNSHARE))
		return errno;
	pagemap = pin_frames_open();
	events_fd = epoll_create1(EPOLL_CLOEXEC);
	return events_fd < 0 ? errno : watch_wake_page();
}

static void *run_uffd(void *arg)
{
	(void)arg;
	failure = set_up();
	atomic_store(&state, failure ? FAILED : STARTED);
	pin_os_wake(&state);
	if (!failure) {
		serve_events();
		atomic_store(&state, FAILED);
	}
	/* The thread's descriptor table is closed with it, which wakes sleeping calls. */
	return NULL;
}

int pin_uffd_start(const struct pin_uffd_callbacks *functions)
{
	int error;

	callbacks = functions;
	owner = getpid();
	wake_page = pin_os_reserve(2 * PIN_PAGE);
	if (!wake_page || pin_os_commit(wake_page, PIN_PAGE))
		return ENOMEM;
	error = pin_thread_start(run_uffd, NULL, "pinalloc-watch");
	while (!error && !atomic_load(&state))
		pin_os_wait(&state, 0);
	if (error || failure)
		return error ? error : failure;
	return wake_thread() || wake_thread() ? failure : EPERM;
}

int pin_uffd_watch(unsigned n, uintptr_t start, size_t length)
{
	struct request request = {.perform = watch_pages,
				  .n = n,
				  .start = start,
				  .length = length,
				  .result = -ECHILD};

	send_request(&request);
	return request.result;
}

bool pin_uffd_unwatch(unsigned n, uintptr_t start, size_t length)
{
	struct request request = {
		.perform = unwatch_pages, .n = n, .start = start, .length = length};

	send_request(&request);
	return !request.result;
}

bool pin_uffd_read(unsigned n, uint32_t ticket)
{
	struct request request = {.perform = read_if_current, .n = n, .ticket = ticket};

	send_request(&request);
	return request.result;
}

bool pin_uffd_is_asleep(unsigned n)
{
	struct request request = {.perform = check_waiting_call, .n = n};

	send_request(&request);
	return request.result;
}

bool pin_uffd_is_shared(uintptr_t page)
{
	struct request request = {.perform = check_shared_page, .start = page};

	send_request(&request);
	return request.result;
}

void pin_uffd_reset(void)
{
	atomic_store(&state, 0);
	atomic_store(&requests, NULL);
	memset(descriptors, 0, sizeof descriptors);
}
