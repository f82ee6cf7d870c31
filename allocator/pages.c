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
 * Prototypes follow jemalloc 5.3.0, include/jemalloc/internal/pages.h and
 * exp_grow.h. All of it runs under jemalloc's locks: nothing here may allocate,
 * take a lock or call code that does. `true` means failure.
 */
#include <config.h>

#include "allocator/growth.h"
#include "allocator/large.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/region.h"
#include "allocator/reserve.h"
#include "allocator/sample.h"

/* enum thp_mode_t: default, always, never, not supported. */
int je_opt_thp;
int je_init_system_thp_mode;
const char *je_thp_mode_names[] = {"default", "always", "never", "not supported"};

/* What jemalloc's own options cannot set, or not from here. */
extern unsigned je_opt_narenas;
extern bool je_opt_junk_alloc, je_opt_junk_free, je_opt_prof;
extern bool je_opt_cache_oblivious;
extern size_t je_sz_large_pad, je_opt_tcache_max;

/* struct exp_grow_s: indices of page size classes. */
struct je_exp_grow {
	unsigned next, limit;
};

bool je_pages_boot(void);
void *je_pages_map(void *addr, size_t size, size_t alignment, bool *commit);
void je_pages_unmap(void *addr, size_t size);
bool je_pages_commit(void *addr, size_t size);
bool je_pages_decommit(void *addr, size_t size);
bool je_pages_purge_lazy(void *addr, size_t size);
bool je_pages_purge_forced(void *addr, size_t size);
bool je_pages_huge(void *addr, size_t size);
bool je_pages_nohuge(void *addr, size_t size);
bool je_pages_dontdump(void *addr, size_t size);
bool je_pages_dodump(void *addr, size_t size);
void je_pages_mark_guards(void *head, void *tail);
void je_pages_unmark_guards(void *head, void *tail);
void je_pages_set_thp_state(void *ptr, size_t size);
void je_exp_grow_init(struct je_exp_grow *grow);

/* Once: after a failure jemalloc begins anew at every malloc. */
static bool heap_range(void)
{
	static bool tried, had;

	if (tried)
		return had;
	tried = true;
	had = !pin_reserve_init() && !pin_region_init();
	if (!had)
		pin_error("cannot reserve address space for the heap: raise ulimit -v");
	else
		pin_large_init(je_opt_tcache_max,
			       !je_opt_prof && !je_opt_junk_alloc && !je_opt_junk_free);
	return had;
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
	pin_sample_prepare();
	return !heap_range();
}

/*
 * Arena metadata is asked for with the alignment of a huge page, memory for
 * blocks with that of a page (extent.c, extent_grow_retained). Only the latter is
 * a region: metadata holds no block, and pinning it would make it all resident.
 * Should a block ever come out of the former kind, it is merely not registered.
 */
void *je_pages_map(void *addr, size_t size, size_t alignment, bool *commit)
{
	bool metadata = alignment >= PIN_GRANULE;
	void *p = NULL;

	if (!addr)
		p = metadata ? pin_reserve_carve_upper(size, alignment)
			     : pin_reserve_carve(size, alignment);
	if (!p)
		return NULL;
	if (!metadata) {
		if (pin_region_publish((uintptr_t)p, size))
			return NULL;
		pin_growth_note(size);
	}
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

/* Refused: jemalloc then zeroes with memset where it needs zeroes. */
bool je_pages_purge_forced(void *addr, size_t size)
{
	(void)addr;
	(void)size;
	return true;
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

/*
 * Index of the page size class of a power of two from 32 KiB up: four classes a
 * doubling, the first group ending at 16 KiB (sz.h, sz_psz2ind).
 */
static unsigned class_of_power(size_t n_bytes)
{
	return 4 * (unsigned)(__builtin_ctzll(n_bytes) - 14) + 3;
}

/*
 * The heap grows by larger and larger steps, up to PINALLOC_GROW: what is pinned is
 * faulted in, so the step bounds what is pinned but not used. Extents of different steps
 * never merge, so the first is no smaller than a few blocks of a few MiB need, but where
 * the bound is low, as under a limit on locked memory, it is a part of that. A request
 * larger than the step still gets the size class it needs, and leaves the rest to others.
 */
#define FIRST_STEP (8 * PIN_MIB)

void je_exp_grow_init(struct je_exp_grow *grow)
{
	size_t first = FIRST_STEP < pin_options.grow / 4 ? FIRST_STEP : pin_options.grow / 4;

	if (first < PIN_GRANULE)
		first = PIN_GRANULE;
	while (first < pin_options.top_pad && first < pin_options.grow)
		first *= 2;
	grow->next = class_of_power(first);
	grow->limit = class_of_power(pin_options.grow);
}
