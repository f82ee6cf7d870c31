/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations that libibverbs makes, of heap memory or other memory. Around each, makes sure
 * that the memory is watched, as long as the memory region exists (books.h). Thread-safe. Must
 * not be called from inside malloc or a signal handler.
 */
#ifndef PIN_FOREIGN_H
#define PIN_FOREIGN_H

#include "regpool/pieces.h"

#include <infiniband/verbs.h>
#include <sys/types.h>

/* A registration that is about to be made or ended. */
struct pin_foreign {
	struct pin_pages range;
	uint64_t descriptors; /* one bit for each that watches the range; 0: none */
	uint64_t ticket;
	pid_t caller;  /* thread id of the caller */
	bool had_hole; /* some of the range was not mapped, so it may not be watched */
};

/*
 * Call before [addr, addr + length) is registered. Memory that is not heap is watched until
 * pin_foreign_end(). Returns false, with nothing begun, if nothing can be watched. Takes about
 * two context switches.
 */
bool pin_foreign_begin(struct pin_foreign *it, const void *addr, size_t length);

/*
 * Call after the registration: whether none of its pages were replaced during it, so that the
 * registered pages are those that are watched.
 */
bool pin_foreign_is_intact(const struct pin_foreign *it);

/* Call before registering again: watches what is mapped there now. */
void pin_foreign_retry(struct pin_foreign *it);

/*
 * Call last. The range stays watched as long as `mr` exists; if NULL, it is watched no longer.
 */
void pin_foreign_end(struct pin_foreign *it, const struct ibv_mr *mr);

/*
 * Call before `mr` is deregistered, after which its address may be reused. Returns whether its
 * range was watched: then call pin_foreign_end() with NULL, or with `mr` if it still exists.
 */
bool pin_foreign_begin_dereg(struct pin_foreign *it, const struct ibv_mr *mr);

#endif
