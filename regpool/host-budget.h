/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PINALLOC_NODE_PINNED: what all processes of a user on this host may pin together. They count
 * it in a file, /dev/shm/pinalloc-pinned-1-UID, without a lock: each process has a slot there
 * that only it changes while it lives. One adds first and then looks at the sum, so of several
 * at the same time none gets what exceeds the limit.
 *
 * Each process is entitled to an equal share, and may use what the others leave. One that is
 * refused although it has less than its share writes down how much it wants. Nobody else takes
 * more then, and those that have more than their share evict what is idle (room.h).
 *
 * What a process had that has ended, whichever way, is given back by the next one that is
 * refused: it is known by its pid and its start time. Memory that the program registers itself
 * is not counted.
 *
 * A file that cannot be used, or that others may write, is replaced by one process. Those that
 * find it at the same time wait for that one, and one of them takes over if it is killed.
 */
#ifndef PIN_HOST_BUDGET_H
#define PIN_HOST_BUDGET_H

#include "allocator/base.h"

#include <stdatomic.h>

/* How often to look whether another process wants something. */
#define PIN_HOST_BUDGET_POLL_MS 100

/* What is known here of the file. All 0 if there is no limit. For the report. */
struct pin_host_budget {
	size_t limit;		/* bytes that all may pin */
	_Atomic size_t peak;	/* the largest sum that was seen when this process pinned */
	_Atomic size_t refused; /* bytes it did not get at first */
};
extern struct pin_host_budget pin_host_budget;

/* Where the file is. Changed by tests only. */
extern const char *pin_host_budget_directory;

/*
 * Takes part if PINALLOC_NODE_PINNED is set. Once, before the first registration. If the file
 * cannot be had, one line says so, and the limit holds for this process alone.
 */
void pin_host_budget_join(void);

static inline bool pin_host_budget_is_on(void)
{
	return pin_host_budget.limit;
}

/*
 * Counts n_bytes that are to be pinned, or are not any more. Of several processes that count at
 * the same time, those that then ask see the sum of all. Lock-free, as are all here.
 */
void pin_host_budget_count(size_t n_bytes);
void pin_host_budget_uncount(size_t n_bytes);

/* Whether n_bytes that were just counted may be pinned; otherwise they must be uncounted. */
bool pin_host_budget_allows(size_t n_bytes);

/* How much this process could have pinned now in all, if it kept nothing. */
size_t pin_host_budget_allowance(void);

/* Whether another process is entitled to something that this one has beyond its share. */
bool pin_host_budget_owes(void);

/*
 * Whether this process was refused something to which it is entitled, and may get it now. What
 * nobody asked for again for some seconds is forgotten here.
 */
bool pin_host_budget_has_room(void);

/* Forgets the file in a forked child, whose parent goes on. Async-signal-safe. */
void pin_host_budget_leave(void);

#endif
