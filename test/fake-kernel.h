/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A simulated kernel for the unit tests: the linker puts it in place of some functions of
 * allocator/os.h and regpool/watch.h (kernel_wraps in Makefile.am). It has no limits except
 * those set, reports replaced pages on demand, and can keep track of residency itself, so that
 * a heap may be larger than the machine.
 */
#ifndef FAKE_KERNEL_H
#define FAKE_KERNEL_H

#include "allocator/base.h"

#include <stdatomic.h>

struct fake_kernel {
	_Atomic size_t memlock;	    /* bytes: RLIMIT_MEMLOCK */
	_Atomic size_t ram, cgroup; /* bytes; 0: as the machine has */
	_Atomic unsigned looks;	    /* at what is in memory: calls */
	_Atomic size_t looked_at;   /* bytes that the pagemap is asked about */
	_Atomic bool keeps_memory;  /* what is, is what fake_touch() was told */
};
extern struct fake_kernel fake_kernel;

/* Memory of the heap that keeps_memory is about gets resident: the pages of whole granules. */
void fake_touch(const void *addr, size_t n_bytes);

/* Half of the pages of one granule do. */
void fake_touch_half(const void *addr);

bool fake_is_touched(const void *addr);

/*
 * What the library does when the program replaces pages; whoever asks for keys meanwhile waits.
 * Returns when it is done. One thread at a time.
 */
void fake_replace(const void *addr, size_t n_bytes);

#endif
