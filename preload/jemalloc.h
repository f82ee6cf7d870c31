/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions of jemalloc in front of which the library has its own, by the names they have in
 * its copy of jemalloc (Makefile.am). They are as in calloc(3) and <jemalloc/jemalloc.h>.
 */
#ifndef PIN_PRELOAD_JEMALLOC_H
#define PIN_PRELOAD_JEMALLOC_H

#include <stddef.h>

#pragma GCC visibility push(hidden)
void *pin_je_calloc(size_t n, size_t size);
void pin_je_dallocx(void *p, int flags);
void *pin_je_mallocx(size_t n_bytes, int flags);
void *pin_je_rallocx(void *p, size_t n_bytes, int flags);
size_t pin_je_nallocx(size_t n_bytes, int flags);
size_t pin_je_xallocx(void *p, size_t n_bytes, size_t extra, int flags);
#pragma GCC visibility pop

#endif
