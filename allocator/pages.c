/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc's page layer. Linking this file's symbols before jemalloc's archive replaces its
 * pages.o, which with extent_dss.o (dss.c) is all of jemalloc that maps, unmaps, protects or
 * advises memory. So every page that jemalloc gets comes from the reserve, from the first
 * allocation on, and the library contains no code that could return one: `nm -D` shows no
 * munmap, madvise or sbrk. A later jemalloc with one more page function fails to link
 * ("multiple definition"), which configure turns into a message; with the linker's --wrap it
 * could go unnoticed.
 *
 * Prototypes follow jemalloc 5.3.0, include/jemalloc/internal/pages.h. Everything here runs
 * under jemalloc's locks: it must not allocate, nor take a lock under which anything
 * allocates. Returning true means failure.
 */
#include <config.h>

#include "allocator/depot.h"
#include "allocator/flag.h"
#include "allocator/growth.h"
#include "allocator/jemalloc.h"
#include "allocator/large.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/sample.h"
#include "allocator/slabs.h"
#include "allocator/span.h"
#include "allocator/store.h"

#include <string.h>

/* enum thp_mode_t: default, always, never, not supported. */
int je_opt_thp;
int je_init_system_thp_mode;
const char *je_thp_mode_names[] = {"default", "always", "never", "not supported"};

/*
 * Reserves the heap's addresses and prepares its tables. Tried only once: after a failure
 * jemalloc starts again at every malloc.
 */
static bool init_heap(void)
{
	static bool tried, succeeded;

	if (tried)
		return succeeded;
	tried = true;
	if ((size_t)getpagesize() > JE_PAGE) {
		pin_error(PIN_SAYS_OTHER_PAGES " %d bytes: build pinalloc with a jemalloc "
			  "configured for those, or start a kernel with pages of %zu",
			  getpagesize(), JE_PAGE);
		return false;
	}
	succeeded = !pin_reserve_init();
	if (!succeeded) {
		pin_error(PIN_SAYS_NO_ADDRESSES " for the heap: raise ulimit -v");
		return false;
	}
	pin_large_init(je_opt_tcache_max,
		       !je_opt_prof && !je_opt_junk_alloc && !je_opt_junk_free);
	pin_slabs_init();
	pin_depot_init();
	return true;
}

/*
 * The first call that jemalloc makes to its page layer, after it has read its options and
 * before it uses those that are set here.
 */
bool je_pages_boot(void)
{
	pin_os_small_statics();
	pin_options_init();
	/*
	 * Large blocks begin on a page boundary: jemalloc would add one page to each for a
	 * random offset, so that a 16 MiB block needs 20 MiB. jemalloc 5.3.0 has no
	 * run-time option for this (sz.c, sz_boot).
	 */
	je_opt_cache_oblivious = false;
	je_sz_large_pad = 0;
	if (pin_options.arena_max)
		je_opt_narenas = (unsigned)pin_options.arena_max;
	if (pin_options.perturb)
		je_opt_junk_alloc = je_opt_junk_free = true;
	/*
	 * With "always" jemalloc would zero memory itself, and touch pages that are zero
	 * already.
	 */
	je_opt_thp = 0;
	pin_sample_prepare();
	return !init_heap();
}

/*
 * Memory for arenas with the program's own extent hooks, if these call jemalloc's default
 * hooks. In a span of its own, so that it merges with nothing else.
 */
static void *map_for_hooks(size_t size)
{
	static struct pin_flag busy;
	static struct pin_span *span;
	char *p;

	pin_flag_lock(&busy);
	p = pin_span_grow(&span, size, pin_os_node());
	/* Its use is not tracked, so all of it counts as used. */
	if (p)
		pin_span_note_use(span, (uintptr_t)p + size);
	pin_flag_unlock(&busy);
	return p;
}

/*
 * jemalloc requests arena metadata with the alignment of a huge page, and memory for blocks
 * with that of a page (extent.c, extent_alloc_wrapper). Only the latter goes in a span:
 * metadata contains no blocks, and pinning it would make all of it resident. If a block did
 * come from metadata, it would merely not be registered.
 */
void *je_pages_map(void *addr, size_t size, size_t alignment, bool *commit)
{
	bool metadata = alignment >= PIN_GRANULE;
	void *p = NULL;

	if (addr)
		p = pin_store_new_memory(addr, size);
	else
		p = metadata ? pin_reserve_carve_upper(size, alignment) : map_for_hooks(size);
	if (!p)
		return NULL;
	if (!metadata)
		pin_growth_note(size);
	*commit = true;
	return p;
}

void je_pages_unmap(void *addr, size_t size)
{
	(void)addr;
	(void)size;
}

bool je_pages_commit(void *addr, size_t size)
{
	(void)addr;
	(void)size;
	return false;
}

bool je_pages_decommit(void *addr, size_t size)
{
	(void)addr;
	(void)size;
	return true;
}

/*
 * Reports success, unlike the others: a lazy purge promises nothing about the contents, and
 * arena.<i>.destroy relies on one way of releasing memory to succeed.
 */
bool je_pages_purge_lazy(void *addr, size_t size)
{
	(void)addr;
	(void)size;
	return false;
}

/*
 * jemalloc calls this when it needs zeroed memory. Memory that was never used is zero already
 * and is not touched: the first thread that touches a page decides its memory node, and much
 * of it may never be used. Fails for memory outside of spans.
 */
bool je_pages_purge_forced(void *addr, size_t size)
{
	if (!pin_span_find(addr, size))
		return true;
	memset(addr, 0, pin_span_used(addr, size));
	return false;
}

bool je_pages_huge(void *addr, size_t size)
{
	(void)addr;
	(void)size;
	return true;
}

bool je_pages_nohuge(void *addr, size_t size)
{
	(void)addr;
	(void)size;
	return true;
}

bool je_pages_dontdump(void *addr, size_t size)
{
	(void)addr;
	(void)size;
	return true;
}

bool je_pages_dodump(void *addr, size_t size)
{
	(void)addr;
	(void)size;
	return true;
}

void je_pages_mark_guards(void *head, void *tail)
{
	(void)head;
	(void)tail;
}

void je_pages_unmark_guards(void *head, void *tail)
{
	(void)head;
	(void)tail;
}

void je_pages_set_thp_state(void *ptr, size_t size)
{
	(void)ptr;
	(void)size;
}
