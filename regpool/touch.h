/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Makes memory resident before anybody needs it, by several threads, which are gone again when
 * that is done. Nothing is as slow in a large pool of memory as one thread's page faults.
 */
#ifndef PIN_TOUCH_H
#define PIN_TOUCH_H

#include "allocator/base.h"

/*
 * Makes [start, start + n_bytes) resident, on a memory node if there are several and the thread
 * has no policy of its own, by n_threads threads: 0 for one for each processor that this
 * thread may run on, up to eight. Contents stay. Returns 0, or -ENOMEM if the kernel has no
 * memory for it. Must not be called from inside malloc.
 */
int pin_touch(void *start, size_t n_bytes, uint32_t node, unsigned n_threads);

#endif
