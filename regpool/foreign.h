/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations that libibverbs makes, of heap or not: around each it is seen to that what is
 * registered is watched, and stays so as long as the memory region lives (books.h).
 */
#ifndef PIN_FOREIGN_H
#define PIN_FOREIGN_H

#include "regpool/pieces.h"

#include <infiniband/verbs.h>
#include <sys/types.h>

/* A registration that is about to be made, or to go. */
struct pin_foreign {
	struct pin_pages range;
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

#endif
