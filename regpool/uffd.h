/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * userfaultfd(2), in a thread with a descriptor table of its own: the program may close all its
 * descriptors, use up its limit, fork or exec, and neither ends a watch nor finds descriptors
 * that it did not open. Only that thread can use these descriptors; other threads send it
 * requests.
 *
 * A watched range: a call that unmaps, remaps or discards pages there sleeps until its message
 * has been read. Page faults are not intercepted.
 */
#ifndef PIN_UFFD_H
#define PIN_UFFD_H

#include "allocator/base.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of Linux 5.11 and 5.19. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

/*
 * The events the kernel must support. pin_uffd_start() needs them, and `pinalloc check` tests
 * for them.
 */
#define PIN_UFFD_EVENTS \
	(UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP)

/*
 * Kernel faults are not needed; without them it takes no privilege. Before Linux 5.11 there is
 * no such flag, and by default no privilege either (vm.unprivileged_userfaultfd). -1 with
 * errno.
 */
static inline int pin_uffd_open(void)
{
	int flags = O_CLOEXEC | O_NONBLOCK;
	int fd = (int)syscall(SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY);

	return fd < 0 && errno == EINVAL ? (int)syscall(SYS_userfaultfd, flags) : fd;
}

/* A range of addresses, whole pages. */
struct pin_pages {
	uintptr_t start, end;
};

/* The pages that [addr, addr + length) overlaps. */
static inline struct pin_pages pin_pages_of(const void *addr, size_t length)
{
	return (struct pin_pages){PIN_ALIGN_DOWN((uintptr_t)addr, PIN_PAGE),
				  PIN_ALIGN_UP((uintptr_t)addr + length, PIN_PAGE)};
}

static inline bool pin_pages_meet(struct pin_pages a, struct pin_pages b)
{
	return a.start < b.end && b.start < a.end;
}

/* Maximum number of descriptors. If fewer are permitted, the first ones are used. */
#define PIN_UFFDS 64

/* The first watches the heap, the others all other memory. */
#define PIN_UFFD_HEAP 0

/* Called in the userfaultfd thread: must not sleep, allocate, or change descriptors. */
struct pin_uffd_callbacks {
	/* A message has arrived in descriptor n, and stays there until pin_uffd_read(n). */
	void (*message_waits)(unsigned n);
	/* Called from time to time while messages wait. */
	void (*still_waits)(void);
	/*
	 * Nothing is watched any more, because of this errno. Called in each thread that then
	 * sends a request.
	 */
	void (*failed)(int error);
};
#define PIN_UFFD_LOOK_MS 1000

/*
 * Starts the thread and opens the first descriptor. Returns 0 or an errno value: ENOSYS or
 * EINVAL before Linux 5.11, or on a processor for which the kernel has no write protection by
 * userfaultfd; EPERM if a system call filter forbids it. Called once. Must not be called from
 * inside malloc.
 */
int pin_uffd_start(const struct pin_uffd_callbacks *functions);

/*
 * Watches a range of pages by descriptor n, opening it if necessary. It stays watched when
 * mremap() moves it. Returns 0; -EFAULT if some of it is not mapped (the rest may be watched or
 * not); -EINVAL if some of it cannot be watched, such as pages of a file; -EBUSY if another
 * descriptor watches some of it; -EPERM if it is not writable; -EMFILE if descriptor n cannot
 * be opened. Sleeps until the thread has done it. Thread-safe. Must not be called from inside
 * malloc.
 */
int pin_uffd_watch(unsigned n, uintptr_t start, size_t length);

/*
 * Reads the message that waits in descriptor n, upon which its call returns. Returns false if
 * there is none, or it cannot be read. Otherwise as pin_uffd_watch().
 */
bool pin_uffd_read(unsigned n, struct uffd_msg *message);

/* For the userfaultfd thread before it logs: its table has no standard error of its own. */
void pin_uffd_borrow_stderr(void);

/*
 * Forgets the thread and its descriptors, in a forked child, where they do not exist.
 * pin_uffd_start() may be called again.
 */
void pin_uffd_reset(void);

#endif
