/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/uffd.h"
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
	uintptr_t start;
	size_t length;
	struct uffd_msg *message;
	int result;
	_Atomic bool done;
};

static struct descriptor {
	int fd;	    /* file descriptor + 1; 0: not open */
	bool waits; /* a message waits to be asked for */
} descriptors[PIN_UFFDS];

static const struct pin_uffd_callbacks *callbacks;
static int events_fd, wake_fd;
static _Atomic(struct request *) requests;
/*
 * A watched page that wakes the thread: discarding it makes a message, and the call returns
 * when the thread has read that. So other threads need no descriptor, which the program might
 * close or mistake for its own.
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

/*
 * Of what is watched, by whichever descriptor, only a part of a huge page cannot have its
 * protection lifted, which nothing here has.
 */
static bool is_watched_huge(int fd, uintptr_t page)
{
	struct uffdio_writeprotect none = {
		.range = {.start = page, .len = PIN_PAGE},
		.mode = UFFDIO_WRITEPROTECT_MODE_DONTWAKE,
	};

	return ioctl(fd, UFFDIO_WRITEPROTECT, &none) && errno == EINVAL;
}

/*
 * hugetlbfs pages can only be watched whole, even if a registration covers a part. That is not
 * tried around unmapped pages, where any other mapping may be. The kernel accepts a range with
 * holes, but does not watch what is mapped into them later.
 */
static int register_whole_pages(int fd, uintptr_t start, size_t length)
{
	static const size_t sizes[] = {PIN_GRANULE, PIN_GIB};
	int error = register_pages(fd, start, length);

	/* What was mapped into a hole between these calls is watched by the third. */
	if ((!error || error == -EINVAL) && !pin_os_is_mapped((void *)start, length))
		return -EFAULT;
	if (error != -EINVAL)
		return error ? error : register_pages(fd, start, length);
	for (size_t i = 0; error == -EINVAL && i < PIN_ARRAY_SIZE(sizes); i++) {
		uintptr_t first = PIN_ALIGN_DOWN(start, sizes[i]);

		error = register_pages(fd, first,
				       PIN_ALIGN_UP(start + length, sizes[i]) - first);
	}
	/* Around what cannot be watched there may be what another descriptor watches. */
	if (error == -EBUSY &&
	    (is_watched_huge(fd, start) || is_watched_huge(fd, start + length - PIN_PAGE)))
		return error;
	return error ? -EINVAL : 0;
}

static void watch_pages(struct request *request)
{
	struct descriptor *its = &descriptors[request->n];

	request->result = its->fd || !open_descriptor(request->n) ? 0 : -EMFILE;
	if (!request->result)
		request->result = register_whole_pages(its->fd - 1, request->start,
						       request->length);
}

/* If reading fails the thread ends. That wakes the calls, which would sleep for ever. */
static bool try_read(int fd, struct uffd_msg *message)
{
	bool taken = read(fd, message, sizeof *message) == sizeof *message;

	if (!taken && errno != EAGAIN)
		failure = errno;
	return taken;
}

/* The kernel delivers messages in order. Whoever asks for one has heard of it. */
static void read_message(struct request *request)
{
	struct descriptor *its = &descriptors[request->n];

	if (!its->waits)
		return;
	its->waits = false;
	request->result = try_read(its->fd - 1, request->message);
	if (!failure)
		failure = -arm_epoll(request->n, EPOLL_CTL_MOD);
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
	descriptors[n].waits = true;
	callbacks->message_waits(n);
}

static bool any_waits(void)
{
	for (unsigned n = 0; n < PIN_UFFDS; n++)
		if (descriptors[n].waits)
			return true;
	return false;
}

#define WAKE_EVENT PIN_UFFDS

/* Nothing depends on the time but when to look whether a call waits in vain. */
static void serve_events(void)
{
	struct epoll_event events[8];

	while (!failure) {
		int timeout = any_waits() ? PIN_UFFD_LOOK_MS : -1;
		int n = epoll_wait(events_fd, events, PIN_ARRAY_SIZE(events), timeout);

		if (n < 0 && errno != EINTR)
			failure = errno;
		if (!n)
			callbacks->still_waits();
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
	events_fd = epoll_create1(EPOLL_CLOEXEC);
	/* So that nothing else gets the number of standard error. */
	if (events_fd < 0 || dup2(events_fd, STDERR_FILENO) < 0)
		return errno;
	return watch_wake_page();
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
		/* Whoever asks for a message finds that there will be none. */
		callbacks->message_waits(PIN_UFFD_HEAP);
	}
	pin_thread_note_end();
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

bool pin_uffd_read(unsigned n, struct uffd_msg *message)
{
	struct request request = {.perform = read_message, .n = n, .message = message};

	send_request(&request);
	return request.result;
}

void pin_uffd_borrow_stderr(void)
{
	int process = (int)syscall(SYS_pidfd_open, owner, 0);
	int fd = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, STDERR_FILENO, 0);

	if (fd >= 0 && fd != STDERR_FILENO)
		dup2(fd, STDERR_FILENO);
}

void pin_uffd_reset(void)
{
	atomic_store(&state, 0);
	atomic_store(&requests, NULL);
	memset(descriptors, 0, sizeof descriptors);
}
