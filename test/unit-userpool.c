/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pools on adapters that take little at a time, and more than this machine has: where memory
 * regions end, and slices. Segments are spans of their own, and nothing is touched. And
 * PINALLOC_PREALLOC: heap memory that is allocated, touched and registered before the program
 * communicates, the residency of which is asked of the machine's own kernel. One case:
 * unit-userpool NAME.
 */
#include <config.h>

#include "allocator/os.h"
#include "allocator/resident.h"
#include "regpool/granule.h"
#include "regpool/keys.h"
#include "regpool/segments.h"
#include "regpool/threads.h"
#include "regpool/userpool.h"
#include "test/cases.h"
#include "test/fake-kernel.h"
#include "test/spans.h"

#include <errno.h>
#include <sys/mman.h>

/* The linker puts these in place of the library's (--wrap). */

static unsigned taken, given;
static int64_t counted; /* bytes */
static bool was_left_alone;
static int touch_error;
static struct pin_span *span; /* of the reserve */
static char *made;	      /* the reserve */
static bool is_there;	      /* memory for it */

int __real_pin_touch(void *start, size_t n_bytes, uint32_t node, unsigned n_threads);

void *__wrap_pin_segment_take(struct pin_segment_need *need)
{
	size_t page = need->page_size ? need->page_size : PIN_GRANULE;
	uintptr_t start = pin_reserve_carve(need->n_bytes + page);
	bool added;

	if (!start || (pin_options.prealloc && !is_there))
		return NULL;
	taken++;
	need->node = 0;
	if (pin_options.prealloc)
		return made = grow(&span, need->n_bytes);
	start = PIN_ALIGN_UP(start, page);
	if (pin_pages_cover(start + need->n_bytes))
		return NULL;
	added = pin_span_add(start, need->n_bytes, 0);
	return added ? (void *)start : NULL;
}

/* Nothing of what was written there of slices is left. */
void __wrap_pin_segment_give(void *segment, size_t n_bytes)
{
	uint32_t first = pin_page_of(segment), last = first + pin_pages_for(n_bytes) - 1;

	given += !pin_pages.kinds[first] && !pin_pages.kinds[last];
}

void __wrap_pin_live_count(int64_t n_bytes)
{
	counted += n_bytes;
}

int __wrap_pin_touch(void *start, size_t n_bytes, uint32_t node, unsigned n_threads)
{
	struct pin_range range = pin_range_of(start, n_bytes), piece;

	if (pin_options.prealloc)
		return __real_pin_touch(start, n_bytes, node, n_threads);
	was_left_alone = pin_segments_meet(range) && !pin_segments_find_piece(range, &piece);
	fake_touch(start, n_bytes);
	return touch_error;
}

static struct pin_userpool *telling; /* which its on_segment asks for more */
static int answer;
static const char *base; /* of the last segment */

/* A pool that grew from there would call it again. */
static int on_segment(void *start, size_t length, int is_added, void *arg)
{
	void *p;

	base = start;
	must(!is_added || !telling || pin_userpool_alloc(telling, length, 0, &p) == -ENOMEM,
	     "it grows");
	return answer;
}

static struct pin_userpool *create(size_t n_bytes, size_t page_size, bool grows)
{
	const struct pin_userpool_options options = {
		{n_bytes, page_size, PIN_NODE_HERE}, .grows = grows, .on_segment = on_segment};
	struct pin_userpool *pool = NULL;

	return pin_userpool_create(&options, &pool) ? NULL : pool;
}

static void *take(struct pin_userpool *pool, size_t n_bytes)
{
	void *slice = NULL;

	return pin_userpool_alloc(pool, n_bytes, 0, &slice) ? NULL : slice;
}

/* Each request for a slice is a look-up. */
static bool are_found(struct pin_userpool *pool, size_t n_bytes, size_t n_expected)
{
	void *slices[512];
	unsigned tried = fake_verbs.tried, n = 0;
	struct pin_range piece;
	bool good = true;

	for (; n < 512 && (slices[n] = take(pool, n_bytes)); n++) {
		struct ibv_mr *mr = reg(case_pd(), slices[n], n_bytes, RIGHTS);

		good &= mr && reaches(mr) &&
			pin_segments_find_piece(pin_range_of(slices[n], n_bytes), &piece) &&
			!pin_segments_find_piece(pin_range_of((void *)(piece.end - 1), 2),
						 &piece);
		if (mr)
			pin_mr_deregister(mr);
	}
	good &= n == n_expected;
	while (n--)
		good &= !pin_userpool_free(pool, slices[n]);
	return good && fake_verbs.tried == tried;
}

/* A later segment may have lower addresses. */
static void in_order(void)
{
	struct pin_segment high = {.range = {4 * PIECE, 6 * PIECE}, .is_ready = true},
			   low = {.range = {PIECE, 3 * PIECE}, .is_ready = true};
	struct pin_range piece;

	high.piece = low.piece = PIECE;
	pin_segments_add(&high);
	pin_segments_add(&low);
	ok(pin_segments_next_piece(0, &piece) && piece.start == PIECE &&
		   pin_segments_next_piece(2 * PIECE, &piece) && piece.start == 4 * PIECE,
	   "pieces come in the order of their addresses");
	pin_segments_remove(&high);
	pin_segments_remove(&low);
}

/* --- words ---------------------------------------------------------------------------- */

/* The second, or the first, is the one that words are about. */
static struct pin_userpool *pools[2];
static void *the_slice;

static struct pin_userpool *last_pool(void)
{
	return pools[pools[1] != NULL];
}

/* As long as the first number says, of such pages. */
static void make_pool(char *p, size_t page_size, bool is_on)
{
	pools[pools[0] != NULL] = create((size_t)(p - heap), page_size, false);
	must(was_left_alone, "what is being touched may be registered");
}

/* Addresses are in it from now on. */
static void take_slice(char *p, size_t n, bool is_on)
{
	the_slice = heap = take(pools[0], (size_t)(p - heap));
	must(the_slice, "there is none");
}

static void must_find(char *p, size_t n, bool is_on)
{
	must(are_found(last_pool(), (size_t)(p - heap), n), "others are, or not all are");
}

static void must_refuse(char *p, size_t n, bool is_on)
{
	must(pin_userpool_alloc(last_pool(), (size_t)(p - heap), 0, &the_slice) == -EFBIG,
	     "it does not");
}

static size_t page;

static int look_at(struct ibv_mr *mr)
{
	must(!((uintptr_t)mr->addr % page) && !(mr->length % page), "one ends elsewhere");
	return 0;
}

/* Memory regions end on borders of pages. */
static void must_end(char *p, size_t n, bool is_on)
{
	page = (size_t)(p - heap);
	fake_for_each_mr(case_pd(), look_at);
}

static void destroy(char *p, size_t n, bool is_on)
{
	must(!the_slice || !pin_userpool_free(pools[0], the_slice), "it is no slice");
	for (size_t i = 0; i < 2; i++)
		must(!pools[i] || !pin_userpool_destroy(pools[i]), "a slice is in use");
}

static void failures(void)
{
	struct pin_userpool *pool;
	void *p, *q;

	touch_error = -ENOMEM;
	must(!create(PIN_GIB, 0, false) && taken == 1 && given == 1 && !counted,
	     "what cannot be touched is not given back");
	touch_error = 0;
	pool = create(64 * PIN_MIB, 0, true);
	must(pin_userpool_alloc(pool, SIZE_MAX - 5, 0, &p) < 0 && taken == 2,
	     "a size makes the pool grow by less");
	touch_error = -ENOMEM;
	must(pin_userpool_alloc(pool, PIN_GIB, 0, &p) == -ENOMEM, "growth does not fail");
	must((p = take(pool, 64 * PIN_MIB)) && pin_userpool_destroy(pool) == -EBUSY,
	     "the pool does not go on, or not stay");
	must(pin_userpool_free(pool, (char *)p + 1) == -EINVAL, "it is no slice");
	touch_error = 0;
	answer = EDQUOT;
	must(pin_userpool_alloc(pool, 1, 0, &q) == -EDQUOT && counted == 64 * PIN_MIB,
	     "on_segment does not refuse");
	answer = 0;
	telling = pool;
	must((q = take(pool, 3 * PIN_MIB)) && counted == (64 + 8) * PIN_MIB,
	     "it does not grow by an eighth");
	must(!pin_userpool_free(pool, p) && !pin_userpool_free(pool, q) &&
		     !pin_userpool_destroy(pool) && given == taken && !counted,
	     "something does not go back");
}

/* --- PINALLOC_PREALLOC ---------------------------------------------------------------- */

#define RESERVE (9 * PIECE) /* no multiple of threads or cells */

/* Behind so much of its span, if there is memory. */
static void set_reserve(char *p, size_t n, bool is_on)
{
	span = p > heap ? NULL : span;
	if (p > heap)
		grow(&span, (size_t)(p - heap));
	pin_options.prealloc = RESERVE;
	fake_kernel.keeps_memory = false;
	is_there = n;
}

static bool is_resident(const char *p, size_t n_bytes)
{
	uint32_t found;

	return pin_resident_count((uintptr_t)p, n_bytes / PIN_PAGE, 1, &found) &&
	       found == n_bytes / PIN_PAGE;
}

static bool is_pinned_by(unsigned n)
{
	unsigned found = 0;

	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
		for (size_t i = 0; i < RESERVE; i += PIECE) {
			uint32_t number = pin_keys_covering(set, made + i);

			found += number &&
				 pin_entry_covers(&set->entries[number], made + i, PIECE);
		}
	return found == n * (RESERVE / PIECE);
}

/* The reserve is touched, and nothing else; from now on addresses are in it. */
static void move_to_reserve(char *p, size_t n, bool is_on)
{
	must(made && taken == 1 && given == 1, "it is taken %u times, given %u", taken, given);
	must(is_resident(made, RESERVE) && !is_resident(heap + PIECE, PIECE), "it is touched");
	heap = made;
}

static void must_be_pinned(char *p, size_t n, bool is_on)
{
	must(taken == 1 && is_pinned_by((unsigned)(p - heap)), "taken %u times", taken);
}

/* --- slices --------------------------------------------------------------------------- */

#define PAGES  4096u /* of a piece */
#define PIECES 3u
#define MOST   500u
#define ROUNDS 200000u

static uint64_t seed = 1;

static uint64_t any(uint64_t below)
{
	uint64_t z = seed += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (z ^ z >> 31) % below;
}

static bool is_taken[PIECES][PAGES];
static struct slice {
	char *start;
	size_t n_bytes;
} held[8192];

static bool claim(const struct slice *slice, bool now)
{
	size_t first = (size_t)(slice->start - base) / PIN_UNIT;
	size_t last = first + pin_pages_for(slice->n_bytes ? slice->n_bytes : 1) - 1;
	bool good = last / PAGES < PIECES && first / PAGES == last / PAGES;

	for (size_t i = first; good && i <= last; i++) {
		good &= is_taken[i / PAGES][i % PAGES] != now;
		is_taken[i / PAGES][i % PAGES] = now;
	}
	return good;
}

/* What there is, in pieces of so much. */
static struct pin_userpool *pool_of(size_t n_bytes, size_t piece)
{
	struct pin_userpool *pool;
	struct ibv_pd *pd;

	fake_verbs.max_mr_size = piece;
	pd = new_pd();
	pool = create(n_bytes, 0, false);
	pin_domain_dealloc(pd);
	fake_verbs.max_mr_size = SIZE_MAX;
	return pool;
}

/* So many of those that are held, the empty ones included. */
static void free_held(struct pin_userpool *pool, size_t n)
{
	while (n--)
		if (held[n].start)
			pin_userpool_free(pool, held[n].start);
}

static void model(void)
{
	struct pin_userpool *pool = pool_of(PIECES * PAGES * PIN_UNIT, PAGES * PIN_UNIT);
	bool good = true, freed = true;
	size_t n = 0;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct slice *slice = &held[any(MOST)];
		size_t alignment = PIN_UNIT << (any(3) ? 0 : any(8));

		if (slice->start) {
			freed &= !pin_userpool_free(pool, slice->start) && claim(slice, false);
			slice->start = NULL;
			continue;
		}
		slice->n_bytes = any(1 + any(any(50) ? 100 * PIN_UNIT : PAGES * PIN_UNIT));
		if (pin_userpool_alloc(pool, slice->n_bytes, alignment, (void **)&slice->start))
			continue;
		n++;
		good &= !((uintptr_t)slice->start % alignment) && claim(slice, true);
	}
	ok(good && freed && n > ROUNDS / 10,
	   "%zu slices are aligned, within one piece, nobody else's, and can be given back", n);
	free_held(pool, MOST);
	good = true;
	for (unsigned i = 0; i < PIECES; i++)
		good &= (held[i].start = take(pool, PAGES * PIN_UNIT)) != NULL;
	ok(good, "all of it has merged when all are free");
	free_held(pool, PIECES);
	must(!pin_userpool_destroy(pool), "a slice is in use");
}

/*
 * Slices of 1 to 64 MiB, as many as go into `most` bytes, any of them freed for the next: as
 * hard as a cache of keys and values can make it, because each has another length.
 */
static size_t refused(struct pin_userpool *pool, size_t most, bool doubles)
{
	size_t n = 0, live = 0, n_refused = 0, i, size;

	for (unsigned round = 0; round < 100000; round++) {
		size = doubles ? PIN_MIB << any(7) : PIN_MIB + any(63 * PIN_MIB / 4096) * 4096;
		for (; live + size > most; held[i] = held[--n]) {
			i = any(n);
			pin_userpool_free(pool, held[i].start);
			live -= held[i].n_bytes;
		}
		held[n] = (struct slice){take(pool, size), size};
		live += held[n].start ? size : 0;
		n_refused += !held[n].start;
		n += held[n].start != NULL;
	}
	free_held(pool, n);
	return n_refused;
}

static void keys_and_values(void)
{
	const size_t most = 1000 * 32 * PIN_MIB; /* a thousand slices */

	for (int doubles = 0; doubles < 2; doubles++) {
		struct pin_userpool *pool = pool_of(most / 10 * 11, SIZE_MAX);
		size_t n = refused(pool, most, doubles);

		ok(n <= 10,
		   "memory of 1.1 times what is live is enough for %s of 1 to 64 MiB: %zu of "
		   "100,000 refused",
		   doubles ? "powers of two" : "any sizes", n);
		pin_userpool_destroy(pool);
	}
}

/* --- cases ---------------------------------------------------------------------------- */

static const struct case_word words[] = {
	{"pool:", make_pool},	     {"slice:", take_slice},
	{"all:", must_find},	     {"refuses:", must_refuse},
	{"ends:", must_end},	     {"destroy", destroy},
	{"reserve:", set_reserve},   {"there", move_to_reserve},
	{"pinned:", must_be_pinned}, {NULL}};

/* An adapter that takes so much, a pool of so much, and slices: how many. */
#define ADAPTER(most, n_bytes, slices, n_live)                                                 \
	{                                                                                      \
		"pieces of " most " of a pool of " n_bytes " have slices, none over a border", \
			"-P mrsize:" most " +P mrsize:none +Q enable:P pool:" n_bytes          \
			",0 all:" slices " " n_live " refuses:" most                           \
			"+1 -P +P enable:P all:" slices " destroy"                             \
	}
#define REFUSED " .0,64 .0,64 .0,64 +Q -Q live=1"

static const struct test_case cases[] = {
	ADAPTER("14c", "64c", "4c,14", "live>3 live<7"),
	ADAPTER("96c", "200c", "32c,6", "live>1 live<5"),
	ADAPTER("4g", "50g", "3m,25", "live>11 live<15"),
	{"memory regions end on borders of pages of 1 GiB",
	 "-P mrsize:14c +P enable:P pool:40c,4c ends:4c all:4c,10 destroy"},
	{"what was evicted is registered as it was: a whole piece",
	 "-P mrsize:12c +P enable:P pool:24c,4c evict:2 evict! slice:1m a=0,1m ends:4c live=1 "
	 "-P!EBUSY -a destroy"},
	{"a pool is registered, though pages of another were replaced",
	 "enable:P pool:4c,0 slice:1m replace:0,1 pool:4c,0 all:1m,512 destroy"},
	{"in a piece that cannot be pinned, a slice is registered by itself",
	 "enable:P fail:1,EFAULT pool:4c,0 slice:1m a=0,1m reg=1m -a destroy"},
	{"what may not be pinned is not tried to be, and one line says so",
	 "enable:P most:4c pool:8c,0 tried=0 reg=0 destroy",
	 "2.0 GiB of a pool are not registered ahead"},
	{"but a slice may be, by itself",
	 "enable:P most:4c pool:8c,0 slice:16m a=0,16m reg=16m -a destroy"},
	{"an adapter that takes less than a granule has pieces of one",
	 "-P mrsize:1m +P pool:4c,0 refuses:1g+1 slice:1g destroy"},
	{"what cannot be touched, or nobody wants, is given back; and a pool that cannot grow "
	 "goes on, and grows by an eighth later, but not from its own on_segment",
	 "call", NULL, failures},
	{"a reserve above the limit is not made, and one line says so",
	 "reserve:0,1 most:9g-1" REFUSED,
	 "PINALLOC_PREALLOC: 18.0 MiB of heap are not reserved: less may be pinned"},
	{"nor over that on locked memory", "reserve:0,1 memlock:18g-2" REFUSED,
	 "less may be pinned"},
	{"nor where there is no memory", "reserve:0,0" REFUSED, "there is not enough memory"},
	{"the first request makes the reserve, malloc gets it, and all domains have it",
	 "reserve:0,1 .0,64 bytes=9g+1p there pinned:1 zero .4g+256p,4g+256p tried=0 +Q "
	 "Q:.0,64 pinned:2 -Q pinned:1"},
	{"so is what lies before it in its span", "reserve:8g,1 .0,64 bytes=17g+1p"},
	{"unless that is longer", "reserve:10g,1 .0,64 bytes=9g+1p"},
};

int main(int argc, char **argv)
{
	struct pin_span *other = NULL;
	char *guarded;

	if (!lazy_pool())
		return 99;
	pin_reserve_carve(PIN_GRANULE); /* page 0 is none (allocator/runs.h) */
	fake_kernel.keeps_memory = true;
	heap = grow(&other, 2 * PIECE);
	/* The reserve would begin here, but there is a page that may not be touched. */
	guarded = grow(&span, PIECE);
	if (mprotect(guarded + PIECE / 2, PIN_PAGE, PROT_NONE))
		return 99;
	pin_hooks.note_armed = pin_userpool_preallocate;
	more_words = words;
	run_cases(cases, PIN_ARRAY_SIZE(cases), argv);
	if (argc > 1)
		return done_testing();
	in_order();
	model();
	keys_and_values();
	return done_testing();
}
