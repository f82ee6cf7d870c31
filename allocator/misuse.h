/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pointers that are none of a block in use: what is wrong with one, who gave it, and then
 * abort(), as in glibc.
 *
 * What is not the heap's, and what is no large block, is always seen. Of small blocks the two
 * of a class that were freed last are looked at with each free(), and each one when it leaves a
 * thread's cache.
 */
#ifndef PIN_MISUSE_H
#define PIN_MISUSE_H

#include "allocator/base.h"

/*
 * Puts the place of the call into buf: "/path/to/MODULE+0xOFFSET", or what else is known of
 * it. Async-signal-safe, never allocates.
 */
extern void (*pin_misuse_caller)(char *buf, size_t size);

/* End the process for a pointer given to a function of this name. */
_Noreturn void pin_misuse_end(const void *p, const char *function, bool frees);
_Noreturn void pin_misuse_end_size(const void *p, size_t size, size_t given,
				   const char *function);

/* The same, for a block that was freed in an earlier call. */
void pin_misuse_end_later(const void *p);

#endif
