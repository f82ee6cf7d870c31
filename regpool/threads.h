/* SPDX-License-Identifier: BSD-2-Clause */
/* The library's own threads. */
#ifndef PIN_THREADS_H
#define PIN_THREADS_H

#include "allocator/base.h"

/*
 * Starts a detached thread that does not end, blocks all signals, and is no real-time thread.
 * The name has at most 15 characters. Returns 0 or an errno value.
 */
int pin_thread_start(void *(*run)(void *), void *arg, const char *name);

/*
 * Makes [start, start + n_bytes) resident by n_threads threads, which end before it returns: 0
 * for one for each processor that this thread may run on, up to eight. On a memory node, if
 * there are several and the thread has no policy of its own. Contents stay. Returns 0, or
 * -ENOMEM if the kernel has no memory for it. Must not be called from inside malloc.
 */
int pin_touch(void *start, size_t n_bytes, uint32_t node, unsigned n_threads);

#endif
