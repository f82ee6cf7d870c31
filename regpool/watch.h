/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Watches for pages that the program replaces behind a registration: of the heap behind malloc,
 * and of whatever else passes through registration (foreign.h). By madvise(MADV_DONTNEED),
 * munmap(), mmap(MAP_FIXED), mremap() or brk(), through libc or not: the kernel tells through
 * userfaultfd(2) while the call waits.
 *
 * First whoever keeps registrations is told (listeners.h), then the message is read, and the
 * call returns: read first, it would leave a moment in which the program already sends from
 * new pages, and a cache still has the old. What the message says is not known before it is
 * read, so all ranges of the descriptor that woke up are told, which is why there are many.
 * Listeners take locks of their own, so they are told by a thread that nobody waits for when a
 * listener has taken PIN_UFFD_PATIENCE_MS.
 *
 * What it cannot do:
 *  - The message of MADV_DONTNEED comes before the pages go. Registrations that another thread
 *    makes in between wait until they must have gone, which takes some milliseconds (gone.h).
 *  - A hole punched into a shared file, System V shared memory, and pages of a file give no
 *    message.
 */
#ifndef PIN_WATCH_H
#define PIN_WATCH_H

#include "regpool/granule.h"

#include <stdatomic.h>
#include <sys/types.h>

/* For the report. */
struct pin_watched {
	_Atomic uint64_t ranges;      /* registrations of memory that is not heap, watched */
	_Atomic uint64_t unwatchable; /* those of which some or all cannot be */
	_Atomic uint64_t events;      /* messages of the kernel */
	_Atomic uint64_t told;	      /* ranges that listeners were told of */
	_Atomic uint64_t late;	      /* messages read before the listeners were done */
};
extern struct pin_watched pin_watched;

/*
 * Whose keys to heap memory go: `withdraw` is called for each piece of any mapping that is
 * replaced, before the listeners know what it was and while look-ups wait, and may not wait for
 * anybody, allocate or write; `say` a moment later, if there is something to be said.
 */
struct pin_watch_heap {
	void (*withdraw)(uintptr_t start, size_t length);
	void (*say)(void);
};

/*
 * Begins, once, for the heap and all it will grow by. Returns whether anything can be watched:
 * not with PINALLOC_WATCH=off, nor where the kernel cannot (before 5.11, not on x86-64, or
 * forbidden by seccomp), which is said. Not from inside malloc.
 */
bool pin_watch_start(const struct pin_watch_heap *heap);

/* Whether it has begun. */
bool pin_watch_is_on(void);

/*
 * Called when [start, start + length) has gone, by the thread that tells: it may take locks and
 * deregister. Set by listeners.c when it has found the first that keeps registrations; until
 * then nobody is told.
 */
typedef void pin_watch_teller(uintptr_t start, size_t length);
void pin_watch_subscribe(pin_watch_teller *teller);

/* Whether all of [addr, addr + length) is watched, heap or not. */
bool pin_watch_has(const void *addr, size_t length);

/*
 * Before a range of the heap is registered: begins for it alone, where the heap is of hugetlb
 * pages and cannot be watched before it grows. Until then it is not registered, so that what is
 * replaced needs no notice.
 */
void pin_watch_range(struct pin_range range);

/*
 * In a forked child, which has neither the threads nor the descriptors: it may begin anew.
 */
void pin_watch_leave(void);

/*
 * What these descriptors watch is told once more, as if it had been replaced. Does not wait:
 * the caller may have locks that listeners want.
 */
void pin_watch_tell_again(uint64_t descriptors);

/* Changes with each message, and when something is told again. */
uint32_t pin_watch_count(void);

/*
 * Around a registration by a thread of this number, with the descriptors that watch its memory,
 * a bit each: waits until whoever was told of something there is done, or has been at it for
 * PIN_UFFD_PATIENCE_MS and may wait for the caller, and pages have gone; and returns a
 * ticket; whether nothing has been replaced since, so that what was pinned is what is mapped.
 */
uint64_t pin_watch_quiet(uint64_t descriptors, pid_t caller);
bool pin_watch_was_quiet(uint64_t descriptors, uint64_t ticket);

/* Internal: not 0 from before such a call returns until keys there are withdrawn. */
extern _Atomic uint32_t pin_watch_pending;
void pin_watch_wait(void);

static inline bool pin_watch_is_pending(void)
{
	return atomic_load_explicit(&pin_watch_pending, memory_order_acquire);
}

/* Before keys are looked up: what was replaced before now is known after it. */
static inline void pin_watch_settle(void)
{
	if (PIN_UNLIKELY(pin_watch_is_pending()))
		pin_watch_wait();
}

#endif
