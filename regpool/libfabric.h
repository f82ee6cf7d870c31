/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A memory monitor for libfabric's registration caches (fi_ext.h; libfabric 1.14 or later). It
 * is imported unless the program has imported another, or one of libfabric's own is running. It
 * replaces memhooks, which misses calls that bypass libc, and libfabric's userfaultfd monitor,
 * which cannot watch what this library watches already.
 */
#ifndef PIN_LIBFABRIC_H
#define PIN_LIBFABRIC_H

#include "regpool/ranges.h"

/*
 * Imports the monitor, given the fi_open() of a loaded libfabric. Does nothing if the user has
 * disabled the cache, or the library was built without libfabric's headers. Called once. Must
 * not be called from inside malloc.
 */
void pin_libfabric_import(void *fi_open_function);

/* Makes libfabric drop what it has cached of [addr, addr + length). Takes libfabric's locks. */
void pin_libfabric_notify(const void *addr, size_t length);

/* What this thread has just registered; the ticket is NULL if it must not be cached. */
void pin_libfabric_note_registered(struct pin_pages range, const struct pin_ticket *ticket);

#endif
