/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A memory monitor for libfabric's registration caches (fi_ext.h; libfabric 1.14 or later). It
 * is imported unless the program has imported another, or one of libfabric's own is running. It
 * replaces memhooks, which misses calls that bypass libc, and libfabric's userfaultfd monitor,
 * which cannot watch what this library watches already.
 */
#ifndef PIN_LIBFABRIC_H
#define PIN_LIBFABRIC_H

#include "allocator/base.h"

/*
 * Imports the monitor, given the fi_open() of a loaded libfabric. Does nothing if the user has
 * disabled the cache, or the library was built without libfabric's headers. Called once. Must
 * not be called from inside malloc.
 */
void pin_libfabric_import(void *fi_open_function);

/* Makes libfabric drop what it has cached of [addr, addr + length). Takes libfabric's locks. */
void pin_libfabric_notify(const void *addr, size_t length);

#endif
