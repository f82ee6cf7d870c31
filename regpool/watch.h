/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Watches registered memory for pages that the program replaces: heap pages, behind malloc, and
 * pages of other memory that passes through registration (foreign.h). They may be replaced with
 * madvise(MADV_DONTNEED), munmap(), mmap(MAP_FIXED), mremap() or brk(), through libc or not:
 * the kernel reports that through userfaultfd(2) while the call sleeps.
 *
 * Registration caches are notified first (listeners.h). Then the message is read, and the call
 * returns. In the opposite order the program could send from new pages while a cache still has
 * the old. The content of the message is not known before it is read, so all ranges of its
 * descriptor are notified, which is why there are many descriptors. Listeners take locks of
 * their own, so they are called by a separate thread.
 *
 * No clock decides any of this. A call sleeps until the listeners have returned, however long
 * that takes. Where a listener waits for a lock of the caller, which then sleeps for ever, that
 * is proven (callers.h) and ends the process with a message.
 *
 * Limits:
 *
 * The message of MADV_DONTNEED comes before the pages are gone, and nothing tells when they
 * are. So registrations that meet one, and later ones of the same memory, are forgotten.
 *
 * A hole punched into a shared file, System V shared memory, and pages of a file cause no
 * message.
 */
#ifndef PIN_WATCH_H
#define PIN_WATCH_H

#include "regpool/granule.h"
#include "regpool/ranges.h"

#include <stdatomic.h>

/* Counters for the report. */
struct pin_watched {
	_Atomic uint64_t ranges;      /* watched registrations of memory that is not heap */
	_Atomic uint64_t forgotten;   /* registrations that caches were told to forget */
	_Atomic uint64_t unwatchable; /* registrations that cannot be watched completely */
	_Atomic uint64_t events;      /* messages from the kernel */
	_Atomic uint64_t told;	      /* ranges that listeners were notified of */
};
extern struct pin_watched pin_watched;

/*
 * Withdraws the keys of heap memory in a range, of any mapping, that is replaced. Returns how
 * many bytes of the heap have lost them. Called while look-ups wait, so it must not wait for
 * other threads, nor log.
 */
typedef size_t pin_watch_withdraw(uintptr_t start, size_t length);

/*
 * Starts watching the heap, including all it will grow by. Returns whether anything can be
 * watched: not with PINALLOC_WATCH=off, nor if the kernel does not support it (before 5.9, not
 * on x86-64, or forbidden by seccomp), which is logged. Only the first call starts; a later one
 * may set the function, which the owner of keys to heap memory does. Thread-safe. Must not be
 * called from inside malloc.
 */
bool pin_watch_start(pin_watch_withdraw *withdraw);

/* Whether watching has started. */
bool pin_watch_is_on(void);

/*
 * Sets the function that is called when [start, start + length) has gone. It is called by the
 * notifying thread, and may take locks and deregister. listeners.c sets it when it has found
 * the first cache; until then nothing is notified.
 */
typedef void pin_watch_listener(uintptr_t start, size_t length);
void pin_watch_subscribe(pin_watch_listener *listener);

/*
 * Watches a range that is not heap, which starts watching. As pin_ranges_watch(); -ENOSYS if
 * nothing can be watched.
 */
int pin_watch_pages(struct pin_pages range, bool is_late, struct pin_ticket *ticket);

/*
 * Call before a range of the heap is registered. Watches the range by itself if the heap uses
 * hugetlb pages, which cannot be watched before the heap grows. Before its registration the
 * range need not be watched.
 */
void pin_watch_range(struct pin_range range);

/*
 * Notifies listeners of all that descriptor n watches, as if it had been replaced. Does not
 * wait, so the caller may hold locks that listeners want.
 */
void pin_watch_notify_again(unsigned n);

/*
 * Whether heap pages may just be replaced, so that what is registered there now must be
 * forgotten.
 */
extern _Atomic uint32_t pin_watch_heap_messages;

static inline bool pin_watch_heap_is_changing(void)
{
	return atomic_load_explicit(&pin_watch_heap_messages, memory_order_acquire);
}

/*
 * Internal: not 0 from before a call that replaces heap pages returns until the keys there are
 * withdrawn.
 */
extern _Atomic uint32_t pin_watch_pending;
void pin_watch_await_pending(void);

static inline bool pin_watch_is_pending(void)
{
	return atomic_load_explicit(&pin_watch_pending, memory_order_acquire);
}

/* Call before keys are looked up: waits until pages replaced before this call are known. */
static inline void pin_watch_catch_up(void)
{
	if (PIN_UNLIKELY(pin_watch_is_pending()))
		pin_watch_await_pending();
}

#endif
