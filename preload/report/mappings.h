/* SPDX-License-Identifier: BSD-2-Clause */
/* What the memory of the process is, by kind of mapping. */
#ifndef PIN_MAPPINGS_H
#define PIN_MAPPINGS_H

#include "allocator/base.h"

#include <limits.h>

enum pin_kind {
	PIN_KIND_HEAP,
	PIN_KIND_TABLES,    /* the library's own, in the same reservation */
	PIN_KIND_ANONYMOUS, /* without a file, and none of those below */
	PIN_KIND_BRK,
	PIN_KIND_STACKS, /* the main one, and what lies behind a guard page */
	PIN_KIND_FILES,
	PIN_KIND_SHARED,
	PIN_KIND_HUGETLB, /* any of these but the heap */
	PIN_KINDS
};

struct pin_mappings {
	size_t n;
	size_t bytes[PIN_KINDS]; /* in memory or swap; all SIZE_MAX if it is not known */

	/* While it is read. */
	enum pin_kind kind;
	size_t guard_end; /* where an inaccessible mapping ends that was the last one; or 0 */
	size_t used;	  /* bytes of `text` */
	char text[PATH_MAX + 256]; /* room for the longest line */
};

/*
 * Reads /proc/self/smaps. The kernel looks at each page for that: some milliseconds a GiB of
 * small ones, during which it lets no mapping of the process change. Async-signal-safe, never
 * allocates.
 */
void pin_mappings_read(struct pin_mappings *mappings);

#endif
