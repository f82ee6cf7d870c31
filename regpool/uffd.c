/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/uffd.h"
#include "allocator/frames.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "regpool/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What others want of the thread; it is on their stacks while they sleep. */
struct order {
	struct order *next;
	void (*carry_out)(struct order *);
	unsigned n;
	uint32_t ticket;
	uintptr_t start;
	size_t length;
	int result;
	_Atomic bool done;
};

static struct descriptor {
	int fd; /* + 1; 0: not open */
	uint32_t ticket;
	bool waits; /* a message in it waits to be asked for, since: */
	uint64_t since_ns;
} descriptors[PIN_UFFDS];

static const struct pin_uffd_user *user;
static int events_fd, bell_fd, pagemap;
static _Atomic(struct order *) orders;
/*
 * A page that is watched as well: to discard it wakes the thread, and returns when the thread
 * has taken the message. So a caller needs no descriptor that the program might close or take
 * for its own. Behind it is one that nobody can read.
 */
static char *bell;

/* 0 while the thread starts; failed, by an errno value, where it could not, or cannot go on. */
enum { STARTED = 1, FAILED };
static _Atomic uint32_t state;
static int failure;
static pid_t owner;

static int opened(void)
{
	struct uffdio_api api = {.api = UFFD_API, .features = PIN_UFFD_EVENTS};
	/* Faults of the kernel's own are not wanted: without them it needs no privilege. */
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	int error;

	if (fd < 0 || !ioctl(fd, UFFDIO_API, &api))
		return fd < 0 ? -errno : fd;
	error = errno;
	close(fd);
	return -error;
}

/*
 * Write-protection mode, in which only pages that were asked for fault, and none is: the other
 * modes would take the faults of memory that is new.
 */
static int protect(int fd, uintptr_t start, size_t length)
{
	struct uffdio_register range = {
		.range = {.start = start, .len = length},
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	return ioctl(fd, UFFDIO_REGISTER, &range) ? -errno : 0;
}

/*
 * Before Linux 6.16 that would end whoever's watch is there, as of a mapping that the program
 * has put there since: what can be watched once more is nobody else's.
 */
static int unprotect(int fd, uintptr_t start, size_t length)
{
	struct uffdio_range range = {.start = start, .len = length};

	if (protect(fd, start, length) == -EBUSY)
		return -EBUSY;
	return ioctl(fd, UFFDIO_UNREGISTER, &range) ? -errno : 0;
}

/* Once for one message: the next waits for another turn. */
static int await(unsigned n, int how)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = n};

	return epoll_ctl(events_fd, how, descriptors[n].fd - 1, &event) ? -errno : 0;
}

static int open_one(unsigned n)
{
	int fd = opened(), error;

	if (fd < 0)
		return fd;
	descriptors[n].fd = fd + 1;
	error = await(n, EPOLL_CTL_ADD);
	if (error) {
		descriptors[n].fd = 0;
		close(fd);
	}
	return error;
}

/* An error if a page of it is not mapped. */
static bool is_mapped(uintptr_t start, size_t length)
{
	return !msync((void *)start, length, MS_ASYNC);
}

/*
 * Pages of hugetlbfs can only be watched whole, whatever of them is registered. Around what is
 * not mapped there may be anything. The kernel does not mind a hole: what comes to be mapped
 * there is not watched.
 */
static int protect_whole(int fd, uintptr_t start, size_t length)
{
	static const size_t sizes[] = {PIN_GRANULE, PIN_GIB};
	bool whole = is_mapped(start, length);
	int error = protect(fd, start, length);

	if (!whole && (!error || error == -EINVAL))
		return -EFAULT;
	for (size_t i = 0; error == -EINVAL && i < PIN_ARRAY_SIZE(sizes); i++) {
		uintptr_t first = PIN_ALIGN_DOWN(start, sizes[i]);

		error = protect(fd, first, PIN_ALIGN_UP(start + length, sizes[i]) - first);
	}
	return error;
}

static void watch(struct order *order)
{
	struct descriptor *its = &descriptors[order->n];

	order->result = its->fd ? 0 : open_one(order->n);
	if (!order->result)
		order->result = protect_whole(its->fd - 1, order->start, order->length);
}

/*
 * Before it looks at what it is asked for, the kernel refuses to change protection while a call
 * is on its way (userfaultfd_writeprotect() in fs/userfaultfd.c: mmap_changing).
 */
static bool has_sleeper(int fd)
{
	return ioctl(fd, UFFDIO_WRITEPROTECT, NULL) && errno == EAGAIN;
}

/*
 * Whether anybody watches a page: to fill it the kernel wants to know before it looks at what
 * from (mcopy_atomic() in mm/userfaultfd.c), which cannot be read, so that nothing changes.
 */
static bool is_watched(int fd, uintptr_t page)
{
	struct uffdio_copy copy = {
		.dst = page, .src = (uintptr_t)bell + PIN_PAGE, .len = PIN_PAGE};

	return ioctl(fd, UFFDIO_COPY, &copy) && errno != ENOENT;
}

/*
 * What the program has put there since is left alone, or a call of its own might meet it
 * watched in part for a moment.
 */
static bool is_left(int fd, uintptr_t start, size_t length)
{
	return is_watched(fd, start) || is_watched(fd, start + length - PIN_PAGE);
}

/*
 * Who is about to discard pages there may still do so when it is watched no longer, and then
 * whoever watches it next would not know. Who comes meanwhile is seen afterwards.
 */
static int end_watch(int fd, uintptr_t start, size_t length)
{
	int error = has_sleeper(fd) ? -EAGAIN : 0;

	if (!error && is_left(fd, start, length))
		error = unprotect(fd, start, length);
	return !error && has_sleeper(fd) ? -EAGAIN : error;
}

/* What is left of a page of hugetlbfs stays watched: that costs a message some day. */
static void unwatch(struct order *order)
{
	uintptr_t start = PIN_ALIGN_UP(order->start, PIN_GRANULE);
	uintptr_t end = PIN_ALIGN_DOWN(order->start + order->length, PIN_GRANULE);
	int fd = descriptors[order->n].fd - 1, error;

	if (fd < 0)
		return;
	error = end_watch(fd, order->start, order->length);
	if (error == -EINVAL && start < end)
		error = end_watch(fd, start, end - start);
	order->result = error == -EAGAIN;
}

/* Where there are none to be had any more the thread ends, or their callers slept for ever. */
static bool has_read(int fd, struct uffd_msg *message)
{
	bool taken = read(fd, message, sizeof *message) == sizeof *message;

	if (!taken && errno != EAGAIN)
		failure = errno;
	return taken;
}

/* The oldest one: the kernel hands them out in turn. */
static void take_message(unsigned n)
{
	struct descriptor *its = &descriptors[n];
	struct uffd_msg message;
	bool taken;

	its->waits = false;
	user->taking(n);
	taken = has_read(its->fd - 1, &message);
	user->took(n, taken ? &message : NULL);
	await(n, EPOLL_CTL_MOD);
}

/* Messages that nobody asked for, since somebody asked for one last. */
static unsigned n_overdue;

static void take(struct order *order)
{
	struct descriptor *its = &descriptors[order->n];

	n_overdue = 0;
	order->result = its->waits && its->ticket == order->ticket;
	if (order->result)
		take_message(order->n);
}

static void look_for_sleeper(struct order *order)
{
	int fd = descriptors[order->n].fd - 1;

	order->result = fd >= 0 && has_sleeper(fd);
}

static void look_at_page(struct order *order)
{
	order->result = pin_frames_is_shared(pagemap, order->start);
}

static void carry_out_orders(void)
{
	struct order *order = atomic_exchange(&orders, NULL), *next;

	for (; order; order = next) {
		next = order->next;
		order->carry_out(order);
		/* From here on it is its caller's. */
		atomic_store(&order->done, true);
	}
}

/* Whoever is read of has left its order before. */
static void answer_bell(void)
{
	struct uffd_msg message;

	do {
		carry_out_orders();
	} while (has_read(bell_fd, &message));
}

/* Returns whether it was heard. mlockall() keeps pages from being discarded. */
static bool ring(void)
{
	bool rung = !syscall(SYS_madvise, bell, PIN_PAGE, MADV_DONTNEED);

	if (!rung)
		munlock(bell, PIN_PAGE);
	return rung;
}

/* More often than anybody who is heard. */
#define IN_VAIN 1000

/*
 * Another caller's turn may take this one's message with it. In a forked child there is nobody
 * to ask, which it may not know, if libc did not fork it; a child of vfork() is heard.
 */
static void ask(struct order *order)
{
	order->next = atomic_load(&orders);
	while (!atomic_compare_exchange_weak(&orders, &order->next, order))
		;
	for (int i = 0; !atomic_load(&order->done) && atomic_load(&state) == STARTED; i++) {
		bool rung = ring();

		if (i >= IN_VAIN && getpid() != owner)
			pin_uffd_leave();
		else if (i >= IN_VAIN && !rung)
			pin_fatal("the thread that watches memory cannot be called any more: "
				  "let the program call madvise, or set PINALLOC_WATCH=off");
	}
	if (atomic_load(&state) == FAILED)
		user->lost(failure);
}

static void has_woken(unsigned n)
{
	struct descriptor *its = &descriptors[n];

	its->waits = true;
	its->since_ns = pin_os_now_ns();
	user->woke(n, ++its->ticket);
}

/*
 * A call may wait for a message of each descriptor, one after the other, with whatever keeps
 * others from asking for any: all of that is to take about twice the patience.
 */
static uint64_t patience_ns(void)
{
	return PIN_UFFD_PATIENCE_MS * 1000000ull >> (n_overdue < 7 ? n_overdue : 7);
}

#define LOOKS_NS 10000000ull

/* Whoever is kept from the processor is not stuck, but must not keep others for ever. */
static bool is_overdue(uint64_t waited_ns)
{
	return waited_ns >= PIN_UFFD_MOST_MS * 1000000ull || user->is_stuck();
}

/* Milliseconds until it is looked again; takes messages that are overdue. -1: none waits. */
static int take_overdue(void)
{
	uint64_t now = pin_os_now_ns(), patience = patience_ns();
	uint64_t least = UINT64_MAX;

	for (unsigned n = 0; n < PIN_UFFDS; n++) {
		struct descriptor *its = &descriptors[n];

		if (!its->waits)
			continue;
		if (now - its->since_ns >= patience && is_overdue(now - its->since_ns)) {
			take_message(n);
			n_overdue++;
		} else if (now - its->since_ns >= patience) {
			least = LOOKS_NS;
		} else if (its->since_ns + patience - now < least) {
			least = its->since_ns + patience - now;
		}
	}
	return least == UINT64_MAX ? -1 : (int)(least / 1000000) + 1;
}

#define BELL PIN_UFFDS

static void serve(void)
{
	struct epoll_event events[8];

	while (!failure) {
		int n = epoll_wait(events_fd, events, PIN_ARRAY_SIZE(events), take_overdue());

		for (int i = 0; i < n; i++) {
			if (events[i].data.u32 == BELL)
				answer_bell();
			else
				has_woken(events[i].data.u32);
		}
	}
}

static int hang_bell(void)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = BELL};
	int error;

	bell_fd = opened();
	if (bell_fd < 0)
		return -bell_fd;
	error = -protect(bell_fd, (uintptr_t)bell, PIN_PAGE);
	if (!error && epoll_ctl(events_fd, EPOLL_CTL_ADD, bell_fd, &event))
		error = errno;
	return error;
}

/* No descriptor of the program's may stay open because the thread has a copy. */
static int set_up(void)
{
	if (close_range(0, ~0u, CLOSE_RANGE_UNSHARE))
		return errno;
	pagemap = pin_frames_open();
	events_fd = epoll_create1(EPOLL_CLOEXEC);
	return events_fd < 0 ? errno : hang_bell();
}

static void *run(void *arg)
{
	(void)arg;
	failure = set_up();
	atomic_store(&state, failure ? FAILED : STARTED);
	pin_os_wake(&state);
	if (!failure) {
		serve();
		atomic_store(&state, FAILED);
	}
	/* Its table of descriptors goes with the thread, and wakes who sleeps. */
	return NULL;
}

int pin_uffd_start(const struct pin_uffd_user *who)
{
	int error;

	user = who;
	owner = getpid();
	bell = pin_os_reserve(2 * PIN_PAGE);
	if (!bell || pin_os_commit(bell, PIN_PAGE))
		return ENOMEM;
	error = pin_thread_start(run, NULL, "pinalloc-watch");
	while (!error && !atomic_load(&state))
		pin_os_wait(&state, 0);
	if (error || failure)
		return error ? error : failure;
	return ring() || ring() ? failure : EPERM;
}

int pin_uffd_watch(unsigned n, uintptr_t start, size_t length)
{
	struct order order = {.carry_out = watch,
			      .n = n,
			      .start = start,
			      .length = length,
			      .result = -ECHILD};

	ask(&order);
	return order.result;
}

bool pin_uffd_unwatch(unsigned n, uintptr_t start, size_t length)
{
	struct order order = {.carry_out = unwatch, .n = n, .start = start, .length = length};

	ask(&order);
	return !order.result;
}

bool pin_uffd_take(unsigned n, uint32_t ticket)
{
	struct order order = {.carry_out = take, .n = n, .ticket = ticket};

	ask(&order);
	return order.result;
}

bool pin_uffd_is_asleep(unsigned n)
{
	struct order order = {.carry_out = look_for_sleeper, .n = n};

	ask(&order);
	return order.result;
}

bool pin_uffd_is_shared(uintptr_t page)
{
	struct order order = {.carry_out = look_at_page, .start = page};

	ask(&order);
	return order.result;
}

void pin_uffd_leave(void)
{
	atomic_store(&state, 0);
	atomic_store(&orders, NULL);
	memset(descriptors, 0, sizeof descriptors);
}
