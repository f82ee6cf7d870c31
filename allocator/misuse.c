/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/fast.h"
#include "allocator/log.h"
#include "allocator/misuse.h"
#include "allocator/span.h"

#include <errno.h>
#include <stdlib.h>

void (*pin_misuse_caller)(char *buf, size_t size);

static inline struct je_page page_of(const void *p)
{
	return je_page_of(&je_arena_emap_global, p);
}

/* NULL if there is none, or it is free. */
static inline const struct je_extent *extent_on(struct je_page page)
{
	const struct je_extent *extent = je_page_extent(page);

	return PIN_LIKELY(extent && je_extent_class(extent) < JE_CLASSES) ? extent : NULL;
}

static inline const struct je_extent *extent_of(const void *p)
{
	return extent_on(page_of(p));
}

static size_t class_size(const struct je_extent *extent)
{
	return je_sz_index2size_tab[je_extent_class(extent)];
}

static bool is_slab(const struct je_extent *extent)
{
	return extent->bits & JE_EXTENT_SLAB;
}

/* A slab's last bytes may be no block. */
static inline bool is_block_of_slab(const struct je_extent *slab, const void *p)
{
	size_t offset = (size_t)((const char *)p - slab->addr), size = class_size(slab);
	uint64_t i = offset * je_arena_binind_div_info[je_extent_class(slab)] >> 32;

	return i * size == offset && offset + size <= je_extent_size(slab) &&
	       !(slab->free_blocks[i / 64] >> i % 64 & 1);
}

/* Whether p came last to the thread's cache, or last but one. */
static inline bool is_last_of(const struct je_cache_bin *bin, const void *p)
{
	unsigned n = je_cached(bin);

	return n && (bin->head[0] == p || (n > 1 && bin->head[1] == p));
}

/* Of a large class, all there are: a few. */
static inline bool is_any_of(const struct je_cache_bin *bin, const void *p)
{
	for (unsigned n = je_cached(bin); n--;)
		if (bin->head[n] == p)
			return true;
	return false;
}

static inline bool has_extent(const void *page)
{
	return je_page_extent(page_of(page));
}

/*
 * The extent in use that p is in. No page in its middle tells: nothing is known of most, and of
 * those where free extents met, only that there is none.
 */
static PIN_COLD const struct je_extent *extent_around(const void *p)
{
	const struct pin_span *span = pin_span_find(p, 1);
	const char *page = (const char *)PIN_ALIGN_DOWN((uintptr_t)p, JE_PAGE);
	const struct je_extent *extent;

	while (span && !has_extent(page) && (uintptr_t)page > span->start)
		page -= JE_PAGE;
	extent = extent_of(page);
	return extent && (size_t)((const char *)p - extent->addr) < je_extent_size(extent)
		       ? extent
		       : NULL;
}

/* What is wrong with p. */
static PIN_COLD void describe(const void *p, bool frees, char *buf, size_t size)
{
	const struct je_extent *extent = extent_around(p);
	size_t offset, n_bytes;

	if (!extent && !pin_span_find(p, 1)) {
		pin_format(buf, size, "invalid pointer, it is not of this heap");
		return;
	}
	n_bytes = extent ? class_size(extent) : 0;
	offset = extent ? (size_t)((const char *)p - extent->addr) : 0;
	if (extent && is_slab(extent))
		offset %= n_bytes;
	else if (extent && je_extent_size(extent) < n_bytes)
		n_bytes = je_extent_size(extent);
	if (offset)
		pin_format(buf, size, "invalid pointer, %zu bytes into the block of %zu at %p",
			   offset, n_bytes, (void *)((uintptr_t)p - offset));
	else
		pin_format(buf, size, "%s, the block is free already",
			   frees ? "double free" : "use after free");
}

static _Noreturn PIN_COLD void say(const char *function, const void *p, const char *what,
				   const char *when)
{
	char caller[256] = "?";

	if (pin_misuse_caller)
		pin_misuse_caller(caller, sizeof caller);
	pin_log_line("%s(%p): %s; %s %s (see MISUSE in pinalloc(7))", function, (void *)p, what,
		     when, caller);
	abort();
}

static _Noreturn PIN_COLD void end(const char *function, const void *p, bool frees)
{
	char what[128];

	describe(p, frees, what, sizeof what);
	say(function, p, what, "called at");
}

/* Whether it is, by all that its extent and the thread's cache tell. */
static inline bool is_block_of(const struct je_extent *extent, const void *p)
{
	unsigned class = je_extent_class(extent);

	if (is_slab(extent))
		return is_block_of_slab(extent, p);
	return extent->addr == p &&
	       !(class < je_nhbins && is_any_of(&je_tsd_here()->bins[class], p));
}

/*
 * A thread that frees and has never allocated gets no cache from jemalloc: it may be about to
 * end. One that frees what others allocate would go without for ever. Nobody frees so many in
 * the last round of a thread's destructors, after which a cache would stay.
 */
#define FREES_BEFORE_CACHE 4096

static PIN_COLD void freed_without_cache(void)
{
	static __thread unsigned n_frees __attribute__((tls_model("initial-exec")));
	int saved = errno;

	if (++n_frees == FREES_BEFORE_CACHE)
		je_free_default(je_malloc_default(1));
	errno = saved; /* there may be no memory */
}

/*
 * The size class of a block in use. Of small ones, where the thread has a cache, no more is
 * read than to free them there: to their slabs blocks in caches are in use.
 */
static inline __attribute__((always_inline)) unsigned checked(const void *p,
							      const char *function, bool frees)
{
	const struct je_tsd *tsd = je_tsd_here();
	const struct je_extent *extent;
	struct je_page page = page_of(p);
	unsigned class;

	if (je_page_is_slab(page) && tsd->has_cache) {
		class = je_page_class(page);
		if (PIN_LIKELY(!is_last_of(&tsd->bins[class], p)))
			return class;
		end(function, p, frees);
	}
	if (PIN_UNLIKELY(!tsd->has_cache))
		freed_without_cache();
	extent = extent_on(page);
	if (PIN_UNLIKELY(!extent || !is_block_of(extent, p)))
		end(function, p, frees);
	return je_extent_class(extent);
}

void pin_free_slowly(void *p)
{
	if (!p)
		return;
	checked(p, "free", true);
	je_free_default(p);
}

void pin_misuse_check(const void *p, const char *function)
{
	checked(p, function, false);
}

void pin_misuse_check_size(const void *p, size_t n_bytes, const char *function)
{
	size_t size = je_sz_index2size_tab[checked(p, function, true)];
	char what[128];

	if (PIN_LIKELY(n_bytes == size))
		return;
	pin_format(what, sizeof what, "wrong size, of a block of %zu bytes and not %zu", size,
		   n_bytes);
	say(function, p, what, "called at");
}

size_t pin_misuse_usable(const void *p, const char *function)
{
	return p ? je_sz_index2size_tab[checked(p, function, false)] : 0;
}

static PIN_COLD void end_later(const void *p)
{
	char what[128];

	describe(p, true, what, sizeof what);
	say("free", p, what, "noticed in a later call at");
}

void pin_misuse_check_some(void *const *blocks, unsigned n)
{
	const struct je_extent *slab = NULL;

	/* What was allocated together is often freed together. */
	for (unsigned i = 0; i < n; i += 4) {
		const char *p = blocks[i];

		if (!slab || (size_t)(p - slab->addr) >= je_extent_size(slab))
			slab = extent_of(p);
		if (PIN_UNLIKELY(!slab || !is_block_of_slab(slab, p)))
			end_later(p);
	}
}
