/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The books of what is watched and is not heap: the ranges of live registrations of memory that
 * the program maps itself. They may overlap; what is watched is cut into pieces that do not,
 * each with the number of registrations that have it and the descriptor that watches it. A
 * piece that nobody has any more is watched no longer if it is small; of large ones, as the
 * kernel takes its time to end a watch, a few stay watched until the program replaces them.
 *
 * A descriptor tells only that something happened to one of its pieces, so pieces are spread
 * over as many as there may be (uffd.h).
 */
#ifndef PIN_FOREIGN_H
#define PIN_FOREIGN_H

#include "allocator/base.h"

#include <infiniband/verbs.h>
#include <sys/types.h>

/* Addresses, whole pages. */
struct pin_foreign_range {
	uintptr_t start, end;
};

/* A registration that is about to be made, or to go. */
struct pin_foreign {
	struct pin_foreign_range range;
	uint64_t descriptors; /* that watch it, a bit each; 0: none of it is */
	uint64_t ticket;
	pid_t caller;  /* the thread */
	bool had_hole; /* what is there now may not be watched */
};

/*
 * Before [addr, addr + length) is registered, heap or not: watches it, if it is not heap, until
 * pin_foreign_end(). Returns false, with nothing begun, when nothing is watched at all. Takes
 * about two changes of threads. Not from inside malloc.
 */
bool pin_foreign_begin(struct pin_foreign *it, const void *addr, size_t length);

/*
 * It has been registered: whether none of its pages were replaced meanwhile, so that what was
 * registered is watched.
 */
bool pin_foreign_held(const struct pin_foreign *it);

/* Before another try: watches what is there by now, and waits as pin_foreign_begin(). */
void pin_foreign_again(struct pin_foreign *it);

/* It is watched as long as this memory region lives; NULL: there is none, so no longer. */
void pin_foreign_end(struct pin_foreign *it, const struct ibv_mr *mr);

/*
 * Before a memory region is deregistered, after which its address may be another's. Returns
 * whether it was watched: then pin_foreign_end() must follow, with NULL or, if it is still
 * there, with it.
 */
bool pin_foreign_take(struct pin_foreign *it, const struct ibv_mr *mr);

/* Whether all of a range is watched, heap or not. */
bool pin_foreign_is_watched(uintptr_t start, size_t length);

/*
 * The next three are for the thread that listeners wait for: they return false, and are to be
 * called again, when another thread has the books or somebody is about to discard pages there.
 *
 * The program has unmapped or moved what descriptor n watched there.
 */
bool pin_foreign_lose(unsigned n, uintptr_t start, uintptr_t end);

/*
 * The program has moved there what descriptor n watched elsewhere, and still does. The
 * descriptors that are to be told again are added, a bit each.
 */
bool pin_foreign_move_in(unsigned n, uintptr_t start, uintptr_t end, uint64_t *again);

/*
 * It has discarded pages of what descriptor n watches there. The descriptors that are to be
 * told again are added.
 */
bool pin_foreign_discard(unsigned n, uintptr_t start, uintptr_t end, uint64_t *again);

/* In a forked child: there are none. */
void pin_foreign_leave(void);

#endif
