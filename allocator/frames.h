/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is behind addresses: which pages are in memory, and in which page frames. All are
 * thread-safe, none allocates; errno is kept.
 */
#ifndef PIN_FRAMES_H
#define PIN_FRAMES_H

#include "allocator/base.h"

/*
 * Which of n_pages from the page of addr on are in memory: bit 0 of a byte each. Where
 * /proc/self/pagemap can be read, only pages that are this process's alone: not the kernel's
 * page of zeroes, which is there after reading only, nor what a child shares; to pin those
 * takes memory. Returns false when the kernel does not say.
 */
bool pin_frames_resident(uintptr_t addr, size_t n_pages, unsigned char *pages);

/*
 * Whether one page is in memory and one of shared memory, or of a file, by a descriptor of
 * /proc/self/pagemap (-errno where there is none: then it is not known to be). For a thread
 * that may keep descriptors.
 */
int pin_frames_open(void);
bool pin_frames_is_shared(int pagemap, uintptr_t page);

/*
 * The page frames behind n_pages from the page of addr on; 0 for a page that is not
 * there. Returns 0; -EPERM when the kernel hides them (no CAP_SYS_ADMIN), -ENOTSUP when
 * it has no /proc/self/pagemap, or -errno of opening or reading that.
 */
int pin_frames_of(uintptr_t addr, size_t n_pages, uint64_t *frames);

#endif
