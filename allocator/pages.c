/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * jemalloc's page layer. Linking this file's symbols before jemalloc's archive
 * takes the place of its own pages.o, which with extent_dss.o (dss.c) is all of
 * jemalloc that maps, unmaps, protects or advises memory. So every page jemalloc ever holds
 * comes from the reserve, from the very first allocation on, and there is no code left in the
 * library that could give one back: `nm -D` shows no munmap, madvise or sbrk. A later jemalloc
 * with one more page function fails to link here
 * ("multiple definition"), which configure turns into a message; it cannot slip
 * past as it could through the linker's --wrap.
 *
 * Prototypes follow jemalloc 5.3.0, include/jemalloc/internal/pages.h. All of it runs under
 * jemalloc's locks: nothing here may allocate, or take a lock that is held around anything
 * that does. `true` means failure.
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

/* Once: after a failure jemalloc begins anew at every malloc. */
static bool heap_range(void)
{
	static bool tried, had;

	if (tried)
		return had;
	tried = true;
	had = !pin_reserve_init();
	if (!had) {
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
 * The first thing jemalloc asks of its page layer, after it has read its own
 * options and before it looks at these.
 */
bool je_pages_boot(void)
{
	pin_os_small_statics();
	pin_options_init();
	/*
	 * Large blocks start on a page, as glibc's do: one page more each, for a
	 * random offset, makes a 16 MiB block need a 20 MiB growth step. jemalloc
	 * 5.3.0 takes this only when it is built (sz.c, sz_boot).
	 */
	je_opt_cache_oblivious = false;
	je_sz_large_pad = 0;
	if (pin_options.arena_max)
		je_opt_narenas = (unsigned)pin_options.arena_max;
	if (pin_options.perturb)
		je_opt_junk_alloc = je_opt_junk_free = true;
	/* With "always" jemalloc would zero by itself, and touch what is zero. */
	je_opt_thp = 0;
	pin_sample_prepare();
	return !heap_range();
}

/*
 * For arenas with extent hooks of the program's own: what such hooks get from jemalloc's.
 * Nobody merges it with anything.
 */
static void *map_apart(size_t size)
{
	static struct pin_flag busy;
	static struct pin_span *span;
	char *p;

	pin_flag_lock(&busy);
	p = pin_span_grow(&span, size, pin_os_node());
	/* What is used of it is not noted: it counts as used. */
	if (p)
		pin_span_note_use(span, (uintptr_t)p + size);
	pin_flag_unlock(&busy);
	return p;
}

/*
 * Arena metadata is asked for with the alignment of a huge page, memory for blocks with that
 * of a page (extent.c, extent_alloc_wrapper). Only the latter is in a span: metadata holds no
 * block, and pinning it would make it all resident. Should a block ever come out of the former
 * kind, it is merely not registered.
 */
void *je_pages_map(void *addr, size_t size, size_t alignment, bool *commit)
{
	bool metadata = alignment >= PIN_GRANULE;
	void *p = NULL;

	if (addr)
		p = pin_store_new_memory(addr, size);
	else
		p = metadata ? pin_reserve_carve_upper(size, alignment) : map_apart(size);
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
 * "Done", unlike the others: a lazy purge promises nothing about the contents,
 * and jemalloc's arena.<i>.destroy relies on one of the releases succeeding.
 */
bool je_pages_purge_lazy(void *addr, size_t size)
{
	(void)addr;
	(void)size;
	return false;
}

/*
 * Where jemalloc needs zeroes, it asks for them here. What was never used is zero, and is not
 * touched: the first to do so decides the memory node, and much of it may never be. Of other
 * memory than blocks: refused.
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
