/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The door to jemalloc. Its arenas hand out runs of pages for slabs of small blocks; where it
 * has pages from, slabs, large blocks and what threads have aside are ours. Of its private names
 * the library has three that are the same in every version since 5.0: those of extent_mmap.o,
 * which jemalloc.c defines, so that the linker does not load that object. One other only makes processes start faster, and may be missing. The rest
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

/* The same since jemalloc 5.0, include/jemalloc/internal/extent_mmap.h. */
extern bool je_opt_retain;
void *je_extent_alloc_mmap(void *at, size_t n_bytes, size_t alignment, bool *zero,
			   bool *commit);
bool je_extent_dalloc_mmap(void *addr, size_t n_bytes);

/* The start of its profiler, of jemalloc 5.3.0 and later; see jemalloc.c. */
bool __wrap_je_prof_boot2(void *tsd, void *base);

/* As malloc(3), free(3), and <jemalloc/jemalloc.h>. */
void *pin_je_malloc(size_t n_bytes);
void pin_je_free(void *p);

/*
 * Whether the calling thread is in what may allocate while a cache, or jemalloc's data of the
 * thread, is not whole: jemalloc's functions and pthread_setspecific(), which allocates where a
 * program has many keys. Then neither may be used.
 */
extern __thread bool pin_is_inside __attribute__((tls_model("initial-exec")));

/*
 * Up to n runs of n_bytes for slabs: whole pages. Returns how many; 0 if there is no memory, or
 * `limited` and memory that nobody has used would be touched. Thread-safe. Preserves errno.
 */
unsigned pin_jemalloc_take(size_t n_bytes, void **runs, unsigned n, bool limited);

/* Thread-safe. */
void pin_jemalloc_give(size_t n_bytes, void *const *runs, unsigned n);

extern const char *malloc_conf;

/* What it calls instead of readlink(2), of /etc/malloc.conf, and of secure_getenv(3). */
ssize_t pin_settings_of_user(const char *path, char *buf, size_t size);
char *pin_settings_last(const char *name);

#pragma GCC visibility pop

int mallctl(const char *name, void *old, size_t *old_size, void *value, size_t size);
void malloc_stats_print(void (*write)(void *arg, const char *text), void *arg,
			const char *options);

#endif
