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
#ifndef PIN_BOOKS_H
#define PIN_BOOKS_H

#include "regpool/pieces.h"

#include <infiniband/verbs.h>

/* As pin_pieces_add() and pin_pieces_renew(). Not from inside malloc. */
int pin_books_add(struct pin_pages range, uint64_t *descriptors);
int pin_books_renew(struct pin_pages range, uint64_t *descriptors);

/* What was added is watched as long as this memory region lives; NULL: there is none. */
void pin_books_keep(struct pin_pages range, const struct ibv_mr *mr);

/* A memory region may go: whether it has a range, for which pin_books_keep() must follow. */
bool pin_books_take(const struct ibv_mr *mr, struct pin_pages *range);

/* Whether all of a range is in the books, and watched. */
bool pin_books_have(struct pin_pages range);

/*
 * The next three are for the thread that listeners wait for: they return false, and are to be
 * called again, when another thread has the books or somebody is about to discard pages there.
 *
 * The program has unmapped or moved what descriptor n watched there.
 */
bool pin_books_lose(unsigned n, uintptr_t start, uintptr_t end);

/*
 * The program has moved there what descriptor n watched elsewhere, and still does. The
 * descriptors that are to be told again are added, a bit each.
 */
bool pin_books_move_in(unsigned n, uintptr_t start, uintptr_t end, uint64_t *again);

/*
 * It has discarded pages of what descriptor n watches there. The descriptors that are to be
 * told again are added.
 */
bool pin_books_discard(unsigned n, uintptr_t start, uintptr_t end, uint64_t *again);

/* In a forked child: there are none. */
void pin_books_leave(void);

#endif
