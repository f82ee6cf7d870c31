/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The interface to jemalloc. Its arenas cut small blocks out of slabs, and its threads' caches
 * keep them; the library gives it pages, and makes large blocks itself. Of jemalloc's private
 * names the library uses three that are the same in every version since 5.0: those of
 * extent_mmap.o, which jemalloc.c defines, so that the linker does not load that object. One
 * more is the same since 5.2: blocks.c. Three more may be missing: two only make processes and
 * threads start faster, the other makes fork() safe. The rest are public functions, by the
 * names that they have in the library's copy of jemalloc (Makefile.am).
 *
 * libjemalloc.a also has other names for what jemalloc calls of libc: jemalloc-refused.c,
 * jemalloc-settings.c, jemalloc.c, atfork.c.
 */
#pragma once

#include "allocator/base.h"
#include "allocator/mutex.h"

#include <pthread.h>
#include <sys/types.h>

#pragma GCC visibility push(hidden)

/* The same since jemalloc 5.0, include/jemalloc/internal/extent_mmap.h. */
extern bool je_opt_retain;
void *je_extent_alloc_mmap(void *at, size_t n_bytes, size_t alignment, bool *zero,
			   bool *commit);
bool je_extent_dalloc_mmap(void *addr, size_t n_bytes);

/*
 * The start of its profiler, of jemalloc 5.3.0 and later, and what makes parts of its page
 * table, of all versions since 5.0; see jemalloc.c.
 */
bool __wrap_je_prof_boot2(void *tsd, void *base);
void *__wrap_je_rtree_leaf_elm_lookup_hard(void *tsd, void *rtree, void *ctx, uintptr_t key,
					   bool is_there, bool makes);
void *__real_je_rtree_leaf_elm_lookup_hard(void *tsd, void *rtree, void *ctx, uintptr_t key,
					   bool is_there, bool makes) __attribute__((weak));

/* Held while such a part is made. Taken after jemalloc's locks, and by some before them. */
extern struct pin_mutex pin_leaf_lock;

/* Fills a cache with n blocks of a class, in 5.3.0; others have other parameters. */
void __wrap_je_arena_cache_bin_fill_small(void *tsdn, void *arena, void *bin, void *info,
					  unsigned class, unsigned n);
extern __typeof__(__wrap_je_arena_cache_bin_fill_small) __real_je_arena_cache_bin_fill_small
	__attribute__((weak));

/*
 * The calling thread's data, where it has not all of it: `minimal` for free(), which then finds
 * no cache. The same since 5.2, but that 5.3.1 counts the calls.
 */
void *__wrap_je_tsd_fetch_slow(void *tsd, bool minimal);
extern __typeof__(__wrap_je_tsd_fetch_slow) __real_je_tsd_fetch_slow;

/* As malloc(3) and so on, and <jemalloc/jemalloc.h>. */
void *pin_je_malloc(size_t n_bytes);
void *pin_je_mallocx(size_t n_bytes, int flags);
void *pin_je_rallocx(void *p, size_t n_bytes, int flags);
void pin_je_dallocx(void *p, int flags);
void pin_je_sdallocx(void *p, size_t n_bytes, int flags);
size_t pin_je_malloc_usable_size(const void *p);
size_t pin_je_nallocx(size_t n_bytes, int flags);
void pin_je_free(void *p);
int pin_je_mallctl(const char *name, void *old, size_t *old_size, void *value, size_t size);
int pin_je_mallctlnametomib(const char *name, size_t *mib, size_t *length);
int pin_je_mallctlbymib(const size_t *mib, size_t length, void *old, size_t *old_size,
			void *value, size_t size);
void pin_je_malloc_stats_print(void (*write)(void *arg, const char *text), void *arg,
			       const char *options);

/*
 * What jemalloc calls instead of pthread_key_create(3). A constructor makes that key before, as
 * behind the 32nd, which may be the program's, pthread_setspecific() keeps values in a block
 * that it allocates: if a thread's first block is that of a key of the program's, glibc (2.36)
 * forgets what jemalloc sets meanwhile.
 */
int pin_jemalloc_make_key(pthread_key_t *made, void (*end)(void *tsd));
void je_tsd_cleanup(void *tsd);

/*
 * Has jemalloc make what it needs for the calling thread. False if there is no memory for it:
 * then only pin_je_free() and pin_je_malloc_usable_size() may be called.
 */
bool pin_jemalloc_begin_thread(void);

/* Whether it is just doing so. */
extern __thread bool pin_jemalloc_begins PIN_HIDDEN __attribute__((tls_model("initial-exec")));

/* What a thread holds that begins; before all of jemalloc's locks. */
extern struct pin_mutex pin_begin_lock;

extern const char *malloc_conf;

/* As mallctlbymib(), but EPERM where a program may not write. */
int pin_settings_by_mib(const size_t *mib, size_t length, void *old, size_t *old_size,
			void *value, size_t size);

/* What it calls instead of readlink(2), of /etc/malloc.conf, of secure_getenv(3), and of
 * sched_getaffinity(2). */
ssize_t pin_settings_of_user(const char *path, char *buf, size_t size);
char *pin_settings_last(const char *name);
int pin_settings_processors(pid_t pid, size_t size, cpu_set_t *set);
long pin_settings_sysconf(int name);

#pragma GCC visibility pop
