/* SPDX-License-Identifier: BSD-2-Clause */
/* The seam to jemalloc: whole pages for its slabs, and its tables. */
#ifndef PIN_SEAM_H
#define PIN_SEAM_H

#include "allocator/base.h"

/*
 * While true, jemalloc gets no pages for the calling thread that would make it touch memory
 * which nobody has used: it fails, and the caller sets free first what it has aside.
 */
extern __thread bool pin_seam_limited __attribute__((tls_model("initial-exec")));

/*
 * To be called before a thread's first call of jemalloc that may allocate, and after it.
 * jemalloc makes an arena and a cache for the thread then, and would go on as if it had them if
 * there were no memory. Returns false if there might be none: then it must not be called.
 */
bool pin_seam_begin_thread(void);
void pin_seam_end_thread(void);

#endif
