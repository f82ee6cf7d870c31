/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pointers that are none of a block in use: what is wrong with one, who gave it, and then
 * abort(), as in glibc. jemalloc believes whatever it is given, and hands one block out
 * twice, or crashes elsewhere.
 *
 * Told by what jemalloc knows of a page: always of large blocks and of what is not the
 * heap's. Small blocks that wait in a thread's cache or in the depot are to jemalloc in use;
 * the two that were freed last are looked at, and each fourth that goes back to its slab. A
 * program without thread caches (MALLOC_CONF=tcache:false) has all of them looked at.
 */
#ifndef PIN_MISUSE_H
#define PIN_MISUSE_H

#include "allocator/jemalloc.h"

/*
 * Puts the place of the call into buf: "/path/to/MODULE+0xOFFSET", or what else is known of
 * it. Async-signal-safe, never allocates.
 */
extern void (*pin_misuse_caller)(char *buf, size_t size);

/*
 * Ends the process unless p, given to a function of this name, is a block in use. Thread-safe,
 * lock-free, never allocates; so are the others.
 */
void pin_misuse_check(const void *p, const char *function);

/* The same, for a function that frees blocks of n_bytes by jemalloc's reckoning. */
void pin_misuse_check_size(const void *p, size_t n_bytes, const char *function);

/* The bytes jemalloc believes p can hold; 0 for NULL. Ends the process as above. */
size_t pin_misuse_usable(const void *p, const char *function);

/*
 * Of small blocks that a thread's cache gives back to their slabs: ends the process unless
 * each fourth is a block in use. All of them would take a sixth more instructions.
 */
void pin_misuse_check_some(void *const *blocks, unsigned n);

#endif
