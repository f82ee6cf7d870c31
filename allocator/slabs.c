/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/slabs.h"
#include "allocator/flag.h"
#include "allocator/jemalloc.h"
#include "allocator/options.h"
#include "allocator/pages.h"

#include <string.h>

#define MOST_DEPOTS    64		/* a record has 8 bits for it */
#define MOST_ASIDE     (1024 * PIN_KIB) /* bytes of a class in a depot in slabs that are free */
#define ONE_PAGE_SHIFT 4		/* PIN_QUANTUM */
#define WORDS	       PIN_ARRAY_SIZE(((struct pin_page *)0)->free)

/*
 * The slabs of one class and depot with free blocks. One is in the list `partial`, or in
 * `whole` if no block is in use. A slab is known by the number of its first page; 0 is none.
 */
static struct shelf {
	struct pin_flag lock;
	uint32_t partial, whole;
	uint32_t n_whole;
	_Atomic uint32_t n_free; /* blocks; read without the lock */
} depots[MOST_DEPOTS][PIN_CLASSES];
PIN_WRITTEN_FIRST static unsigned n_depots;
static _Atomic unsigned n_used = 1; /* nobody has had those behind */

/* Of the slabs of a class. A block begins at a multiple of 2^shift, which has a bit. */
PIN_WRITTEN_FIRST static struct layout {
	uint64_t begins[WORDS];
	size_t n_bytes;
	unsigned n, n_pages, shift;
} layouts[PIN_CLASSES];

/* --- layouts ----------------------------------------------------------------------- */

/*
 * The fewest pages that blocks of a class almost fill. The fewer share a slab, the sooner all
 * of them are free: blocks that have a page for few may leave a little more behind the last.
 */
static unsigned pages_for(size_t size)
{
	size_t share = size > PIN_UNIT / 4 ? 16 : 32, n_bytes = PIN_UNIT;

	while (n_bytes % size > n_bytes / share)
		n_bytes += PIN_UNIT;
	return (unsigned)(n_bytes / PIN_UNIT);
}

void pin_slabs_init(void)
{
	n_depots = MOST_DEPOTS;
	if (pin_options.arena_max && pin_options.arena_max < n_depots)
		n_depots = (unsigned)pin_options.arena_max;
	for (unsigned class = 0; class < PIN_CLASSES; class ++) {
		struct layout *layout = &layouts[class];
		size_t size = pin_class_sizes[class];

		layout->n_pages = pages_for(size);
		layout->n_bytes = layout->n_pages * PIN_UNIT;
		layout->n = (unsigned)(layout->n_bytes / size);
		/* Blocks that fill more pages are of so many bytes, or of a multiple. */
		layout->shift = layout->n_pages == 1  ? ONE_PAGE_SHIFT
				: layout->n_pages < 4 ? 6
						      : 8;
		for (unsigned i = 0; i < layout->n; i++) {
			size_t bit = i * size >> layout->shift;

			layout->begins[bit / 64] |= UINT64_C(1) << bit % 64;
		}
	}
}

static struct pin_page *record(uint32_t page)
{
	return &pin_pages.records[page];
}

static inline uint32_t slab_of(const struct layout *layout, const void *p)
{
	uint32_t page = pin_page_of(p);

	return layout->n_pages == 1 ? page : page - record(page)->lead;
}

static inline size_t offset_in(uint32_t slab, const void *p)
{
	return (uintptr_t)p - (uintptr_t)pin_page_at(slab);
}

static inline bool begins_at(const struct layout *layout, size_t offset)
{
	size_t bit = offset >> layout->shift;

	return bit << layout->shift == offset && bit / 64 < WORDS &&
	       layout->begins[bit / 64] >> bit % 64 & 1;
}

bool pin_slabs_begins(unsigned class, const void *p)
{
	const struct layout *layout = &layouts[class];

	return begins_at(layout, offset_in(slab_of(layout, p), p));
}

uintptr_t pin_slabs_start(unsigned class, const void *p)
{
	uint32_t slab = slab_of(&layouts[class], p);

	return (uintptr_t)p - offset_in(slab, p) % pin_class_sizes[class];
}

/* --- lists, under the shelf's lock -------------------------------------------------- */

static void add(uint32_t *list, uint32_t slab)
{
	record(slab)->next = *list;
	record(slab)->previous = 0;
	if (*list)
		record(*list)->previous = slab;
	*list = slab;
}

static void drop(uint32_t *list, uint32_t slab)
{
	uint32_t next = record(slab)->next, previous = record(slab)->previous;

	if (previous)
		record(previous)->next = next;
	else
		*list = next;
	if (next)
		record(next)->previous = previous;
}

static void add_free(struct shelf *shelf, unsigned n)
{
	atomic_store_explicit(&shelf->n_free, shelf->n_free + n, memory_order_relaxed);
}

static void add_whole(struct shelf *shelf, uint32_t slab)
{
	add(&shelf->whole, slab);
	shelf->n_whole++;
}

/* What goes back to jemalloc when no lock is held any more; and what was no block in use. */
struct given {
	void *slabs[64];
	unsigned n;
	const void *wrong;
};

static bool is_full(const struct given *given)
{
	return given->n == PIN_ARRAY_SIZE(given->slabs);
}

/* From now on no block of it is one. */
static void give(struct shelf *shelf, const struct layout *layout, uint32_t slab,
		 struct given *given)
{
	add_free(shelf, -layout->n);
	memset(pin_pages.kinds + slab, PIN_KIND_NONE, layout->n_pages);
	given->slabs[given->n++] = pin_page_at(slab);
}

/* After a block has come back: the first that is free of a slab, or the last. */
static void note_put(struct shelf *shelf, const struct layout *layout, uint32_t slab,
		     struct given *given)
{
	unsigned n_free = record(slab)->n_free;

	if (n_free == 1)
		add(&shelf->partial, slab);
	if (n_free < layout->n)
		return;
	drop(&shelf->partial, slab);
	if (shelf->n_whole * layout->n_bytes < MOST_ASIDE)
		add_whole(shelf, slab);
	else
		give(shelf, layout, slab, given);
}

/* Takes n blocks at most of a slab, the lowest, to the places below `end`. */
static unsigned take_of(const struct layout *layout, uint32_t slab, void **end, unsigned n)
{
	char *start = pin_page_at(slab);
	unsigned got = 0;

	for (unsigned i = 0; i < WORDS; i++) {
		uint64_t bits = record(slab)->free[i];

		for (; bits && got < n; bits &= bits - 1) {
			size_t bit = 64 * i + (size_t)__builtin_ctzll(bits);

			*--end = start + (bit << layout->shift);
			got++;
		}
		record(slab)->free[i] = bits;
	}
	record(slab)->n_free -= (uint16_t)got;
	return got;
}

static unsigned take_from_one(struct shelf *shelf, const struct layout *layout, void **end,
			      unsigned n)
{
	uint32_t slab = shelf->partial;

	if (!slab) {
		slab = shelf->whole;
		if (!slab)
			return 0;
		drop(&shelf->whole, slab);
		shelf->n_whole--;
		add(&shelf->partial, slab);
	}
	n = take_of(layout, slab, end, n);
	if (!record(slab)->n_free)
		drop(&shelf->partial, slab);
	return n;
}

static unsigned take(struct shelf *shelf, const struct layout *layout, void **blocks,
		     unsigned n)
{
	unsigned got = 0, more;

	while (got < n && (more = take_from_one(shelf, layout, blocks + n - got, n - got)))
		got += more;
	if (got < n)
		memmove(blocks, blocks + n - got, got * sizeof *blocks);
	add_free(shelf, -got);
	return got;
}

/* --- depots ------------------------------------------------------------------------- */

unsigned pin_slabs_depot(unsigned number)
{
	number %= n_depots;
	if (number >= n_used)
		n_used = number + 1;
	return number;
}

unsigned pin_slabs_take(unsigned depot, unsigned class, void **blocks, unsigned n)
{
	struct shelf *shelf = &depots[depot][class];

	pin_flag_lock(&shelf->lock);
	n = take(shelf, &layouts[class], blocks, n);
	pin_flag_unlock(&shelf->lock);
	return n;
}

/* As much as is worth having neighbours in other threads, which may share a cache line. */
#define MANY (16 * PIN_KIB)

unsigned pin_slabs_take_any(unsigned class, void **blocks, unsigned n)
{
	unsigned least = (unsigned)(MANY / pin_class_sizes[class]);

	for (unsigned i = 0; i < n_used; i++)
		if (atomic_load_explicit(&depots[i][class].n_free, memory_order_relaxed) >=
		    least)
			return pin_slabs_take(i, class, blocks, n);
	return 0;
}

static void begin_slab(unsigned depot, unsigned class, uint32_t slab)
{
	const struct layout *layout = &layouts[class];

	memcpy(record(slab)->free, layout->begins, sizeof layout->begins);
	record(slab)->n_free = (uint16_t)layout->n;
	record(slab)->depot = (uint8_t)depot;
	for (unsigned i = 0; i < layout->n_pages; i++)
		record(slab + i)->lead = (uint8_t)i;
	memset(pin_pages.kinds + slab, (int)class + 1, layout->n_pages);
}

unsigned pin_slabs_grow(unsigned depot, unsigned class, void **blocks, unsigned n, bool limited)
{
	const struct layout *layout = &layouts[class];
	unsigned n_slabs = (n + layout->n - 1) / layout->n;
	struct shelf *shelf = &depots[depot][class];
	void *slabs[16];

	if (n_slabs > PIN_ARRAY_SIZE(slabs))
		n_slabs = PIN_ARRAY_SIZE(slabs);
	n_slabs = pin_jemalloc_take(layout->n_bytes, slabs, n_slabs, limited);
	for (unsigned i = 0; i < n_slabs; i++)
		begin_slab(depot, class, pin_page_of(slabs[i]));
	pin_flag_lock(&shelf->lock);
	for (unsigned i = n_slabs; i-- > 0;)
		add_whole(shelf, pin_page_of(slabs[i]));
	add_free(shelf, n_slabs * layout->n);
	n = take(shelf, layout, blocks, n);
	pin_flag_unlock(&shelf->lock);
	return n;
}

/* Records are used in the order of blocks, which may be any: so far ahead they are fetched. */
#define AHEAD 6

/*
 * Puts those that are of this depot, until others, or what is wrong, or enough to give back.
 * Returns how many are left, which are the first then. Blocks come from anywhere, and memory is
 * slow: so each instruction counts here, and what is constant is.
 */
static inline __attribute__((always_inline)) unsigned put_own(unsigned depot, unsigned class,
							      void **blocks, unsigned n,
							      struct given *given,
							      bool is_one_page)
{
	const struct layout *layout = &layouts[class];
	const unsigned shift = is_one_page ? ONE_PAGE_SHIFT : layout->shift;
	const struct pin_pages pages = pin_pages;
	unsigned n_left = 0, i;

	for (i = 0; i < n && !is_full(given); i++) {
		void *p = blocks[i];
		uint32_t page = pin_page_of(p), slab = page;
		struct pin_page *record = &pages.records[page];
		size_t bit;
		uint64_t mask;

		if (i + AHEAD < n)
			__builtin_prefetch(&pages.records[pin_page_of(blocks[i + AHEAD])], 1);
		if (PIN_UNLIKELY(pages.kinds[page] != class + 1))
			break;
		if (!is_one_page) {
			slab -= record->lead;
			record -= record->lead;
		}
		if (record->depot != depot) {
			blocks[n_left++] = p;
			continue;
		}
		bit = offset_in(slab, p) >> shift;
		mask = UINT64_C(1) << bit % 64 & layout->begins[bit / 64];
		if (PIN_UNLIKELY(!(mask & ~record->free[bit / 64]) ||
				 (uintptr_t)p & (((uintptr_t)1 << shift) - 1)))
			break;
		record->free[bit / 64] |= mask;
		record->n_free++;
		if (record->n_free == 1 || record->n_free == layout->n)
			note_put(&depots[depot % MOST_DEPOTS][class], layout, slab, given);
	}
	if (i < n && !is_full(given))
		given->wrong = blocks[i];
	memmove(blocks + n_left, blocks + i, (n - i) * sizeof *blocks);
	return n_left + n - i;
}

const void *pin_slabs_put(unsigned class, void **blocks, unsigned n)
{
	const struct layout *layout = &layouts[class];

	while (n) {
		bool is_one = pin_pages.kinds[pin_page_of(blocks[0])] == class + 1;
		unsigned depot = is_one ? record(slab_of(layout, blocks[0]))->depot : 0, left;
		/* After misuse a record may have become a large block's meanwhile. */
		struct shelf *shelf = &depots[depot % MOST_DEPOTS][class];
		struct given given;

		given.n = 0;
		given.wrong = NULL;
		pin_flag_lock(&shelf->lock);
		if (layout->n_pages == 1)
			left = put_own(depot, class, blocks, n, &given, true);
		else
			left = put_own(depot, class, blocks, n, &given, false);
		add_free(shelf, n - left);
		pin_flag_unlock(&shelf->lock);
		pin_jemalloc_give(layout->n_bytes, given.slabs, given.n);
		if (PIN_UNLIKELY(given.wrong != NULL))
			return given.wrong;
		n = left;
	}
	return NULL;
}

static void give_some(struct shelf *shelf, const struct layout *layout, struct given *given)
{
	uint32_t slab;

	pin_flag_lock(&shelf->lock);
	while ((slab = shelf->whole) && !is_full(given)) {
		drop(&shelf->whole, slab);
		shelf->n_whole--;
		give(shelf, layout, slab, given);
	}
	pin_flag_unlock(&shelf->lock);
}

void pin_slabs_give(void)
{
	struct given given;

	for (unsigned i = 0; i < n_used * PIN_CLASSES; i++) {
		const struct layout *layout = &layouts[i % PIN_CLASSES];

		do {
			given.n = 0;
			give_some(&depots[i / PIN_CLASSES][i % PIN_CLASSES], layout, &given);
			pin_jemalloc_give(layout->n_bytes, given.slabs, given.n);
		} while (is_full(&given));
	}
}

void pin_slabs_lock(void)
{
	for (unsigned i = 0; i < n_used * PIN_CLASSES; i++)
		pin_flag_lock(&depots[i / PIN_CLASSES][i % PIN_CLASSES].lock);
}

void pin_slabs_unlock(void)
{
	for (unsigned i = 0; i < n_used * PIN_CLASSES; i++)
		pin_flag_unlock(&depots[i / PIN_CLASSES][i % PIN_CLASSES].lock);
}
