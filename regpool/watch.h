/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Watches registered memory for pages that the program replaces: heap pages, behind malloc, and
 * pages of other memory that passes through registration (foreign.h). They may be replaced with
 * madvise(MADV_DONTNEED), munmap(), mmap(MAP_FIXED), mremap() or brk(), through libc or not:
 * the kernel reports that through userfaultfd(2) while the call sleeps.
 *
 * Registration caches are notified first (listeners.h). Then the message is read, and the call
 * returns. In the opposite order the program could send from new pages while a cache still has
 * the old. The content of the message is not known before it is read. So caches are told that
 * the heap has gone, or all memory that is not heap. Listeners take locks of their own, so they
 * are called by a separate thread.
 *
 * No clock decides any of this. A call sleeps until the listeners have returned, however long
 * that takes: for ever where a listener waits for a lock of the caller.
 *
 * Limits:
 *
 * The message of MADV_DONTNEED comes before the pages are gone, and nothing tells when they
 * are. So registrations that meet one are invalidated, and later ones of the same memory.
 *
 * A hole punched into a shared file, System V shared memory, and pages of a file cause no
 * message.
 */
#pragma once

#include "allocator/os.h"
#include "regpool/range.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of Linux 5.11. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

/* What the kernel must support. */
#define PIN_UFFD_FEATURES                                                                  \
	(UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP | \
	 UFFD_FEATURE_PAGEFAULT_FLAG_WP)

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

/* Counters for the report. */
struct pin_watched {
	_Atomic uint64_t ranges;      /* watched registrations of memory that is not heap */
	_Atomic uint64_t invalidated; /* registrations that caches were told to invalidate */
	_Atomic uint64_t unwatchable; /* registrations that cannot be watched completely */
	_Atomic uint64_t events;      /* messages from the kernel */
	_Atomic uint64_t notified;    /* ranges that listeners were notified of */
};
extern struct pin_watched pin_watched;

/*
 * Each has a descriptor of userfaultfd(2). That a message waits shows of which of them, and no
 * more.
 */
enum pin_watch_kind { PIN_WATCH_HEAP, PIN_WATCH_FOREIGN, PIN_WATCHES };

/*
 * Starts watching the heap, including all it will grow by, unless it is watched. Returns
 * whether anything can be watched: not with PINALLOC_WATCH=off, nor if the kernel does not
 * support it (before 5.9, on arm64 before 6.10), a filter forbids it, or there are no threads
 * or descriptors, which is logged. It is tried again now and then: once it works, nothing
 * counts that was registered before. With PINALLOC_WATCH=strict nothing may be served from the
 * heap without it. Thread-safe. Must not be called from inside malloc.
 */
bool pin_watch_start(void);

/*
 * Why pin_watch_start() has returned false, and what follows: a sentence. Returns the cure.
 */
const char *pin_watch_why_not(char *text, size_t size);

/* Whether watching has started. */
bool pin_watch_is_on(void);

/*
 * In a child, from a handler of fork(): nobody notices there what is replaced, as if something
 * always were.
 */
void pin_watch_reset(void);

/*
 * Watches a range of pages, after pin_watch_start(). It stays watched when mremap() moves it.
 * Returns 0; -EFAULT if some of it is not mapped (the rest may be watched or not); -EINVAL if
 * some of it cannot be watched, such as pages of a file; -EBUSY if another descriptor watches
 * some of it; -EPERM if it is not writable; -ECHILD in a forked child. Sleeps until a thread
 * has done it, which waits for nobody. Thread-safe. Must not be called from inside malloc.
 */
int pin_watch_pages(enum pin_watch_kind kind, struct pin_range pages);

/*
 * Notifies listeners as if all had been replaced. Does not wait, so the caller may hold locks
 * that listeners want.
 */
void pin_watch_notify(void);

/*
 * Messages of each: how many have arrived, which is counted before listeners are notified, and
 * of how many all has been done. If `arrived`, read after `settled`, is the same number, no
 * message is being handled.
 */
extern _Atomic uint32_t pin_watch_arrived[PIN_WATCHES], pin_watch_settled[PIN_WATCHES];

/*
 * Whether the program may be replacing heap pages now. Then what is registered there must be
 * invalidated.
 */
static inline bool pin_watch_heap_is_changing(void)
{
	return pin_watch_arrived[PIN_WATCH_HEAP] != pin_watch_settled[PIN_WATCH_HEAP];
}

/*
 * Internal: not 0 from before a call that replaces heap pages returns until the keys there are
 * withdrawn.
 */
extern _Atomic uint32_t pin_watch_pending;

static inline bool pin_watch_is_pending(void)
{
	return atomic_load_explicit(&pin_watch_pending, memory_order_acquire);
}

/* Call before keys are looked up: waits until pages replaced before this call are known. */
static inline void pin_watch_catch_up(void)
{
	while (PIN_UNLIKELY(pin_watch_is_pending()))
		pin_os_wait(&pin_watch_pending, true);
}
