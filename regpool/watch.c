/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/watch.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "regpool/pool.h"
#include "regpool/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

_Atomic uint32_t pin_watch_pending;
static _Atomic int watch_fd = -1;

static void (*_Atomic replaced)(uintptr_t start, size_t length);

static void take(const struct uffd_msg *message)
{
	switch (message->event) {
	case UFFD_EVENT_REMOVE:
	case UFFD_EVENT_UNMAP:
		replaced(message->arg.remove.start,
			 message->arg.remove.end - message->arg.remove.start);
		break;
	case UFFD_EVENT_REMAP:
		replaced(message->arg.remap.from, message->arg.remap.len);
		break;
	default:
		break;
	}
}

/* Whether the program has not closed it, and opened another in its place. */
static bool is_watch(int fd)
{
	struct uffdio_range nothing = {.start = pin_reserve.base, .len = PIN_PAGE};

	return !ioctl(fd, UFFDIO_WAKE, &nothing);
}

/*
 * The kernel lets the program's call return when its message has been read, and not
 * before: so `pending` is seen by whoever comes after the call. False when the file
 * descriptor is the program's by now, who must not lose what it reads there.
 */
static bool take_all(int fd)
{
	struct uffd_msg message;

	if (!is_watch(fd))
		return false;
	atomic_store(&pin_watch_pending, 1);
	while (read(fd, &message, sizeof message) == sizeof message)
		take(&message);
	atomic_store(&pin_watch_pending, 0);
	pin_os_wake(&pin_watch_pending);
	return true;
}

static void *run(void *arg)
{
	struct pollfd watch = {.fd = (int)(intptr_t)arg, .events = POLLIN};
	int n;

	do {
		n = poll(&watch, 1, -1);
	} while ((n < 0 && errno == EINTR) ||
		 (n == 1 && watch.revents == POLLIN && take_all(watch.fd)));
	pin_warn("the program has closed file descriptor %d, which is not its own: pages of "
		 "the heap that it replaces behind malloc are not noticed any longer",
		 watch.fd);
	return NULL;
}

/*
 * Hugetlb pages are mapped over the reservation as the heap grows. Were that watched, each
 * step would wait for the thread here, under jemalloc's locks, and so might the thread.
 */
static bool by_range(void)
{
	return pin_options.huge == PIN_HUGE_TLB;
}

/*
 * Write-protection mode, in which only pages that were asked for fault, and none
 * is: the other modes would take the faults of memory that is new. The kernel's own
 * faults are not wanted either; leaving them out needs no privilege.
 */
static bool watch_range(int fd, uintptr_t start, size_t length)
{
	struct uffdio_register range = {
		.range = {.start = start, .len = length},
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	return !ioctl(fd, UFFDIO_REGISTER, &range);
}

static bool watch_heap(int fd)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP |
			    UFFD_FEATURE_EVENT_REMAP,
	};

	return !ioctl(fd, UFFDIO_API, &api) &&
	       (by_range() || watch_range(fd, pin_reserve.base, pin_reserve.size));
}

static int open_watch(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);

	if (fd >= 0 && !watch_heap(fd)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static void say_unwatched(int error)
{
	pin_info("pages of the heap that the program replaces behind malloc are not noticed: "
		 "userfaultfd: %s",
		 strerrordesc_np(error));
}

void pin_watch_range(struct pin_range range)
{
	static atomic_bool said;
	int fd = atomic_load(&watch_fd), saved = errno;

	if (fd >= 0 && by_range() && is_watch(fd) &&
	    !watch_range(fd, range.start, pin_range_length(range)) &&
	    !atomic_exchange(&said, true))
		say_unwatched(errno);
	errno = saved;
}

static void start(void)
{
	int fd = open_watch(), error = fd < 0 ? errno : 0;

	if (!error)
		error = pin_thread_start(run, (void *)(intptr_t)fd, "pinalloc-watch");
	if (!error) {
		watch_fd = fd;
		return;
	}
	say_unwatched(error);
	if (fd >= 0)
		close(fd);
}

void pin_watch_start(void (*tell)(uintptr_t start, size_t length))
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	replaced = tell;
	pthread_once(&once, start);
}

void pin_watch_leave(void)
{
	int fd = atomic_exchange(&watch_fd, -1);

	if (fd >= 0 && is_watch(fd))
		close(fd);
}

/* A forked child has no thread that would end it, and no registrations either. */
PIN_COLD void pin_watch_wait(void)
{
	while (atomic_load(&pin_watch_pending) && !pin_pool_off())
		pin_os_wait(&pin_watch_pending, 1);
}
