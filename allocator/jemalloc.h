/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The door to jemalloc. It cuts slabs into small blocks; pages, large blocks and what threads
 * have aside are ours. Of its private names the library has three that are the same in every
 * version since 5.0: those of extent_mmap.o, which slabs.c defines, so that the linker does not
 * load that object. One other only makes processes start faster, and may be missing. The rest
 * are public functions, by the names that they have in the library's copy of jemalloc
 * (Makefile.am).
 *
 * libjemalloc.a also has other names for what jemalloc calls of libc: refused.c, start.c.
 */
#ifndef PIN_JEMALLOC_H
#define PIN_JEMALLOC_H

#include "allocator/base.h"

#include <sys/types.h>

#pragma GCC visibility push(hidden)

/* jemalloc 5.0 to 5.3.1, include/jemalloc/internal/extent_mmap.h. */
extern bool je_opt_retain;
void *je_extent_alloc_mmap(void *at, size_t n_bytes, size_t alignment, bool *zero,
			   bool *commit);
bool je_extent_dalloc_mmap(void *addr, size_t n_bytes);

/* The start of its profiler, of jemalloc 5.3.0 and later; see slabs.c. */
bool __wrap_je_prof_boot2(void *tsd, void *base);

/* As malloc(3), free(3), and <jemalloc/jemalloc.h>. */
void *pin_je_malloc(size_t n_bytes);
void pin_je_free(void *p);

extern const char *malloc_conf;

/* What it calls instead of readlink(2), of /etc/malloc.conf, and of secure_getenv(3). */
ssize_t pin_settings_of_user(const char *path, char *buf, size_t size);
char *pin_settings_last(const char *name);

#pragma GCC visibility pop

int mallctl(const char *name, void *old, size_t *old_size, void *value, size_t size);
void malloc_stats_print(void (*write)(void *arg, const char *text), void *arg,
			const char *options);

#endif
