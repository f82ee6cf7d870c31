/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What allocator/jemalloc-layout.h says of jemalloc's extents, page table and sets, compared
 * with what jemalloc does: a field at another place, or a bit of another meaning, fails here.
 */
#include <config.h>

#include "allocator/jemalloc.h"
#include "allocator/span.h"
#include "allocator/store.h"
#include "test/mallctl.h"
#include "test/tap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <jemalloc/jemalloc.h>

#define LARGE	 (48 * JE_PAGE + 3392)
#define ON_PAGES (49 * JE_PAGE) /* that, in whole ones */
#define MANY	 400

/* The store that asked last, and the set that last had an extent put in. */
static struct pin_store *store;
static struct je_set *set;

struct je_extent *__wrap_pin_store_alloc(void *tsdn, struct pin_store *asked,
					 const struct pin_need *need);
struct je_extent *__real_pin_store_alloc(void *tsdn, struct pin_store *asked,
					 const struct pin_need *need);

struct je_extent *__wrap_pin_store_alloc(void *tsdn, struct pin_store *asked,
					 const struct pin_need *need)
{
	store = asked;
	return __real_pin_store_alloc(tsdn, asked, need);
}

void __wrap_je_eset_insert(struct je_set *into, struct je_extent *extent);
void __real_je_eset_insert(struct je_set *into, struct je_extent *extent);

void __wrap_je_eset_insert(struct je_set *into, struct je_extent *extent)
{
	set = into;
	__real_je_eset_insert(into, extent);
}

static unsigned new_arena(void)
{
	unsigned arena = 0;
	size_t size = sizeof arena;

	mallctl("arenas.create", &arena, &size, NULL, 0);
	return arena;
}

static char *block(unsigned arena, size_t n_bytes)
{
	return mallocx(n_bytes, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE);
}

static void release(void *p)
{
	dallocx(p, MALLOCX_TCACHE_NONE);
}

static struct je_page page_of(const void *p)
{
	return je_page_of(&je_arena_emap_global, p);
}

static struct je_extent none;

static struct je_extent *extent_at(const void *p)
{
	struct je_extent *extent = je_page_extent(page_of(p));

	return extent ? extent : &none;
}

static void classes(void)
{
	size_t wrong = 0;

	ok(figure("arenas.nbins") == JE_SMALL_CLASSES, "so many classes are small");
	ok(figure("arenas.nbins") + figure("arenas.nlextents") == JE_CLASSES,
	   "so many there are");
	ok(figure("arenas.nhbins") == je_nhbins, "caches have blocks of so many");
	ok(figure("arenas.page") == JE_PAGE, "a page is one here");
	for (size_t n = 1; n <= 4096; n++)
		wrong += je_sz_index2size_tab[je_sz_size2index_tab[(n + 7) / 8]] !=
			 nallocx(n, 0);
	ok(!wrong, "the class of a small request, and its size");
	for (size_t n = 20000; n < PIN_GIB; n += n / 7 + 1)
		wrong += je_large_class(n) != nallocx(n, 0);
	ok(!wrong, "the size of the class of a large one");
	for (size_t i = 0; i < JE_SMALL_CLASSES; i++)
		for (uint64_t k = 0, size = je_sz_index2size_tab[i]; k * size < 16 * JE_PAGE;
		     k++)
			wrong += k * size * je_arena_binind_div_info[i] >> 32 != k;
	ok(!wrong, "how to divide by the size of a small class");
}

static void large_extent(void)
{
	unsigned first = new_arena(), second = new_arena();
	char *a = block(first, LARGE), *b = block(second, LARGE), *c = block(second, LARGE);
	struct je_extent *extent = extent_at(a);
	struct je_page page = page_of(a), middle = page_of(a + LARGE / 2);

	ok(extent->addr == a,
	   "a large block's first page tells its extent, and that the address");
	ok(je_extent_size(extent) == ON_PAGES, "its size is whole pages");
	ok(je_sz_index2size_tab[je_extent_class(extent)] == nallocx(LARGE, 0), "its class");
	ok(je_page_class(page) == je_extent_class(extent), "which is also in the page's entry");
	ok(extent->asked == LARGE, "what was asked for is kept where jemalloc writes nothing");
	ok((extent->bits & JE_EXTENT_ARENA) == first &&
		   (extent_at(b)->bits & JE_EXTENT_ARENA) == second,
	   "its arena");
	ok(JE_EXTENT_ARENA == MALLCTL_ARENAS_ALL - 1, "there is room for any");
	ok(!(extent->bits & JE_EXTENT_SLAB) && !je_page_is_slab(page), "it is no slab");
	ok(!middle.extent && !middle.facts, "a page in its middle tells nothing");
	ok(PIN_ARRAY_SIZE(je_arena_emap_global.root) << JE_ROOT_SHIFT ==
		   UINT64_C(1) << JE_ADDRESS_BITS,
	   "the root spans all addresses");
	/* jemalloc's list of an arena's large blocks. */
	ok(extent_at(b)->left == extent_at(c) && extent_at(b)->right == extent_at(c) &&
		   extent_at(c)->left == extent_at(b),
	   "the links are where jemalloc has its own");
}

/* Of two so far apart one is in the upper half of a leaf. */
static void leaves(void)
{
	unsigned arena = new_arena();
	char *low = block(arena, (size_t)1 << (JE_LEAF_SHIFT - 1)), *high = block(arena, LARGE);

	ok(extent_at(low)->addr == low && extent_at(high)->addr == high && high > low,
	   "a leaf has the pages of so many addresses");
	release(low);
	release(high);
}

static void free_extents(void)
{
	unsigned arena = new_arena();
	char *first = block(arena, LARGE), *second = block(arena, LARGE);
	char *behind = block(arena, LARGE);

	release(second);
	ok(je_extent_class(extent_at(second)) == JE_CLASSES &&
		   extent_at(second)->addr == second,
	   "a free extent has a class of its own");
	release(first);
	release(behind);
	ok(je_page_class(page_of(second)) == JE_CLASSES && !je_page_extent(page_of(second)),
	   "where two have met there is the class, and no extent");
}

/* Of the heap's first span: its first extent, and one that came by growth. */
static void pieces(void)
{
	const struct pin_span *span = pin_span_get(0);
	const struct je_extent *first = extent_at((void *)span->start), *later;
	char *p = malloc(64 * PIN_MIB);

	later = extent_at(p);
	ok(first->bits & JE_EXTENT_HEAD && !(later->bits & JE_EXTENT_HEAD),
	   "the first extent of a span is marked, so that jemalloc merges no other with it");
	free(p);
}

static size_t n_free(const struct je_extent *slab)
{
	size_t n = 0;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(slab->free_blocks); i++)
		n += (size_t)__builtin_popcountl(slab->free_blocks[i]);
	return n;
}

static bool is_free(const struct je_extent *slab, const char *p, size_t size)
{
	size_t i = (size_t)(p - slab->addr) / size;

	return slab->free_blocks[i / 64] >> i % 64 & 1;
}

/* Of 8 bytes each: all the bits that there are. */
static void slab(void)
{
	enum { BLOCKS = JE_PAGE / 8 };
	unsigned arena = new_arena();
	char *blocks[BLOCKS];
	struct je_extent *extent;
	size_t wrong = 0;

	for (size_t i = 0; i < BLOCKS; i++) {
		blocks[i] = block(arena, 8);
		extent = extent_at(blocks[i]);
		wrong += n_free(extent) != BLOCKS - 1 - i || is_free(extent, blocks[i], 8);
		wrong += je_extent_class(extent) != 0;
	}
	ok(!wrong,
	   "a slab has a bit for each free block, and its class, however many are free");
	extent = extent_at(blocks[7]);
	ok(extent->bits & JE_EXTENT_SLAB && je_page_is_slab(page_of(blocks[7])),
	   "it is a slab");
	ok(je_extent_size(extent) == JE_PAGE && extent->addr <= blocks[7], "of one page");
	release(blocks[7]);
	ok(n_free(extent) == 1 && is_free(extent, blocks[7], 8), "a block is free again");
}

/* jemalloc keeps slabs with free blocks in a heap, whose nodes have a third link. */
static void slabs(void)
{
	unsigned arena = new_arena();
	char *blocks[MANY];
	size_t n_below = 0;

	for (size_t i = 0; i < MANY; i++)
		blocks[i] = block(arena, 1024);
	for (size_t i = 0; i < MANY; i += 4)
		release(blocks[i]);
	for (size_t i = 0; i < MANY; i++)
		for (size_t k = 0; k < MANY; k++)
			n_below += extent_at(blocks[i])->largest ==
				   (size_t)extent_at(blocks[k]);
	ok(n_below, "the third link is where jemalloc has its own");
}

/* Extent hooks of the program's own. */
static char *room, *first_given_back;
static unsigned hooked_arena;
static const void *hooks_called;

static void *give(extent_hooks_t *hooks, void *addr, size_t size, size_t alignment, bool *zero,
		  bool *commit, unsigned arena)
{
	char *p = (char *)PIN_ALIGN_UP((uintptr_t)room, alignment);

	hooks_called = hooks;
	hooked_arena = arena;
	if (addr)
		return NULL;
	room = p + size + JE_PAGE; /* apart from the next */
	*zero = *commit = true;
	return p;
}

static bool take_back(extent_hooks_t *hooks, void *addr, size_t size, bool committed,
		      unsigned arena)
{
	(void)hooks;
	(void)size;
	(void)committed;
	(void)arena;
	if (!first_given_back)
		first_given_back = addr;
	return false;
}

static extent_hooks_t own_hooks = {.alloc = give, .dalloc = take_back};

static struct je_extent *piece(struct je_hooks *from)
{
	bool commit = true;

	return je_extent_alloc_wrapper(NULL, store->pac, from, NULL, PIN_MIB, JE_PAGE, false,
				       &commit, false);
}

static void hooks(void)
{
	struct je_hooks made = {.arena = 7, .functions = &own_hooks};
	const struct je_extent *first = piece(&made), *second = piece(&made);

	ok(store->hooks.arena == 0 && store->hooks.functions == &je_ehooks_default_extent_hooks,
	   "the first arena keeps the first pool");
	ok(hooks_called == &own_hooks && hooked_arena == 7, "an arena's hooks, and its number");
	ok(second->addr == first->addr + PIN_MIB + JE_PAGE && second->bits & JE_EXTENT_HEAD,
	   "what comes from them is a piece");
	ok(second->serial == first->serial + 1, "and has the next number");
}

/* jemalloc gives back what such an arena has free: first what the set says is the oldest. */
static void oldest(void)
{
	extent_hooks_t *own = &own_hooks;
	char *blocks[3], purge[40];
	struct je_set *of_arena;
	unsigned arena = 0;
	size_t size = sizeof arena;

	mallctl("arenas.create", &arena, &size, &own, sizeof own);
	for (size_t i = 0; i < 3; i++)
		blocks[i] = block(arena, 16 * PIN_MIB);
	for (size_t i = 0; i < 3; i++)
		release(blocks[i]);
	of_arena = set;
	for (size_t i = 0; i < 3; i++)
		if (extent_at(blocks[i]) != of_arena->root)
			of_arena->oldest = extent_at(blocks[i]);
	ok(of_arena->n_pages >= 3 * 16 * PIN_MIB / JE_PAGE && of_arena->has_figures,
	   "a set counts what is in it");
	blocks[0] = of_arena->oldest->addr;
	snprintf(purge, sizeof purge, "arena.%u.purge", arena);
	first_given_back = NULL;
	mallctl(purge, NULL, NULL, NULL, 0);
	ok(first_given_back == blocks[0], "jemalloc begins with the oldest of a set");
}

static void figures(void)
{
	size_t mapped = figure("stats.arenas.0.mapped"), resident, retained, n_bytes = 0;
	size_t base = figure("stats.arenas.0.base"),
	       huge = figure("stats.arenas.0.metadata_thp");
	char name[60], *p = mallocx(64 * PIN_MIB, MALLOCX_ARENA(0) | MALLOCX_TCACHE_NONE);

	ok(figure("stats.arenas.0.mapped") - mapped >= 64 * PIN_MIB, "an arena's bytes mapped");
	resident = figure("stats.arenas.0.resident");
	retained = figure("stats.arenas.0.retained");
	release(p);
	ok(figure("stats.arenas.0.mapped") - mapped < PIN_MIB, "are those that it uses");
	ok(figure("stats.arenas.0.retained") == retained + 64 * PIN_MIB,
	   "free ones are retained");
	ok(figure("stats.arenas.0.resident") == resident, "and stay resident");
	ok(figure("stats.arenas.0.base") - base < PIN_MIB &&
		   figure("stats.arenas.0.metadata_thp") == huge,
	   "all that is no metadata");
	for (unsigned i = 0; i < JE_SET_CLASSES - 1; i++) {
		snprintf(name, sizeof name, "stats.arenas.0.extents.%u.retained_bytes", i);
		n_bytes += figure(name);
	}
	ok(n_bytes == figure("stats.arenas.0.retained"), "sets tell it by sizes");
}

int main(void)
{
	room = mmap(NULL, PIN_GIB, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	classes();
	pieces();
	large_extent();
	leaves();
	free_extents();
	slab();
	slabs();
	hooks();
	oldest();
	figures();
	return done_testing();
}
