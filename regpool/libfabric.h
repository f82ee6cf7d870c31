/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A memory monitor for libfabric's registration caches, which it imports when nobody else's has
 * been and none of its own is at work (fi_ext.h; libfabric 1.14 or later). It takes the place
 * of memhooks, which misses what bypasses libc, and of libfabric's userfaultfd monitor, which
 * cannot watch what the library watches already.
 */
#ifndef PIN_LIBFABRIC_H
#define PIN_LIBFABRIC_H

#include "allocator/base.h"

/*
 * Given the fi_open() of a libfabric that was found. Nothing is done where the user has
 * disabled the cache, or the library was built without libfabric's headers. Once.
 */
void pin_libfabric_import(void *fi_open_function);

/* What is cached of [addr, addr + length) goes. Takes libfabric's locks. */
void pin_libfabric_tell(const void *addr, size_t length);

#endif
