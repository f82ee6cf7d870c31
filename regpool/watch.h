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
 * their own, so they are called by a separate thread, and nothing waits for it once a listener
 * has taken PIN_UFFD_TIMEOUT_MS.
 *
 * Limits:
 *
 * The message of MADV_DONTNEED comes before the pages are gone. Registrations that other
 * threads make in between wait until they must be, which takes some milliseconds (gone.h).
 *
 * A hole punched into a shared file, System V shared memory, and pages of a file cause no
 * message.
 */
#ifndef PIN_WATCH_H
#define PIN_WATCH_H

#include "regpool/granule.h"

#include <stdatomic.h>
#include <sys/types.h>

/* Counters for the report. */
struct pin_watched {
	_Atomic uint64_t ranges;      /* watched registrations of memory that is not heap */
	_Atomic uint64_t unwatchable; /* registrations that cannot be watched completely */
	_Atomic uint64_t events;      /* messages from the kernel */
	_Atomic uint64_t told;	      /* ranges that listeners were notified of */
	_Atomic uint64_t late;	      /* messages read before the listeners had returned */
};
extern struct pin_watched pin_watched;

/*
 * Callbacks of the owner of keys to heap memory. `withdraw` is called for each range of any
 * mapping that is replaced, before listeners know what was and while look-ups wait; it must not
 * sleep, allocate or write to a file. `log_withdrawn` is called a moment later, and logs if
 * there is a reason to.
 */
struct pin_watch_heap {
	void (*withdraw)(uintptr_t start, size_t length);
	void (*log_withdrawn)(void);
};

/*
 * Starts watching the heap, including all it will grow by. Returns whether anything can be
 * watched: not with PINALLOC_WATCH=off, nor if the kernel does not support it (before 5.9, not
 * on x86-64, or forbidden by seccomp), which is logged. Only the first call starts; a later one
 * may set the callbacks. Thread-safe. Must not be called from inside malloc.
 */
bool pin_watch_start(const struct pin_watch_heap *heap);

/* Whether watching has started. */
bool pin_watch_is_on(void);

/*
 * Sets the function that is called when [start, start + length) has gone. It is called by the
 * notifying thread, and may take locks and deregister. listeners.c sets it when it has found
 * the first cache; until then nothing is notified.
 */
typedef void pin_watch_listener(uintptr_t start, size_t length);
void pin_watch_subscribe(pin_watch_listener *listener);

/* Whether all of [addr, addr + length) is watched, heap or not. */
bool pin_watch_covers(const void *addr, size_t length);

/*
 * Call before a range of the heap is registered. Watches the range by itself if the heap uses
 * hugetlb pages, which cannot be watched before the heap grows. Before its registration the
 * range need not be watched.
 */
void pin_watch_range(struct pin_range range);

/*
 * Notifies listeners again of all that these descriptors watch (one bit each), as if it had
 * been replaced. Does not wait, so the caller may hold locks that listeners want.
 */
void pin_watch_notify_again(uint64_t descriptors);

/* Changes with each message, and when listeners are to be notified again. */
uint32_t pin_watch_generation(void);

/*
 * Call before and after a registration, with the descriptors that watch its memory, one bit
 * each, and the caller's thread id. The first waits until the notifications of earlier messages
 * are done, or have taken PIN_UFFD_TIMEOUT_MS and may be waiting for the caller, and discarded
 * pages are gone. It returns a ticket. The second returns whether nothing was replaced since,
 * so that what was pinned is what is mapped.
 */
uint64_t pin_watch_await_quiet(uint64_t descriptors, pid_t caller);
bool pin_watch_stayed_quiet(uint64_t descriptors, uint64_t ticket);

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
