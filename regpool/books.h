/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records the ranges of live registrations of memory that is not heap, so that they are
 * watched. Ranges may overlap. pieces.h cuts them into pieces that do not, each with the number
 * of registrations that cover it and the descriptor that watches it. A small piece without
 * registrations is not watched any longer. Of large ones a few stay watched until the program
 * replaces them, because ending a watch is slow.
 *
 * A descriptor only tells that something happened to one of its pieces, so pieces are spread
 * over as many descriptors as possible (uffd.h).
 */
#ifndef PIN_BOOKS_H
#define PIN_BOOKS_H

#include "regpool/pieces.h"

#include <infiniband/verbs.h>

/* As pin_pieces_add() and pin_pieces_renew(). Must not be called from inside malloc. */
int pin_books_add(struct pin_pages range, uint64_t *descriptors);
int pin_books_renew(struct pin_pages range, uint64_t *descriptors);

/* A range that was added stays watched as long as `mr` exists; if NULL, it is removed. */
void pin_books_keep(struct pin_pages range, const struct ibv_mr *mr);

/*
 * Call before `mr` is deregistered. If it has a range, removes the association, sets *range and
 * returns true; pin_books_keep() must follow.
 */
bool pin_books_remove(const struct ibv_mr *mr, struct pin_pages *range);

/* Whether all of a range is recorded and watched. */
bool pin_books_cover(struct pin_pages range);

/*
 * The next three are for the thread that notifies listeners, which must not wait. They return
 * false, and must be called again, if another thread holds the lock or a call is about to
 * discard pages there.
 *
 * The program has unmapped or moved memory that descriptor n watched there.
 */
bool pin_books_note_unmapped(unsigned n, uintptr_t start, uintptr_t end);

/*
 * The program has moved memory there that descriptor n watched elsewhere, and still does.
 * Descriptors whose listeners must be notified again are added to *again, one bit each.
 */
bool pin_books_note_moved_in(unsigned n, uintptr_t start, uintptr_t end, uint64_t *again);

/* The program has discarded pages that descriptor n watches there. *again as above. */
bool pin_books_note_discarded(unsigned n, uintptr_t start, uintptr_t end, uint64_t *again);

/* Forgets everything, in a forked child. */
void pin_books_reset(void);

#endif
