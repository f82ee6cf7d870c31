/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Says what is wrong with a pointer that is no block in use, and who passed it, and aborts, as
 * glibc does.
 *
 * Detected are pointers outside of the heap, pointers to pages where no large block in use
 * begins, and pointers to small blocks whose pages jemalloc has given back.
 */
#pragma once

#include "allocator/base.h"

/* Ends the process for a pointer given to a function of this name, which returns to caller. */
_Noreturn void pin_misuse_end(const void *p, bool frees, const char *function,
			      const void *caller);
