/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/cache.h"
#include "allocator/flag.h"
#include "allocator/heap.h"
#include "allocator/jemalloc.h"
#include "allocator/large.h"
#include "allocator/live.h"
#include "allocator/log.h"
#include "allocator/misuse.h"
#include "allocator/options.h"
#include "allocator/reserve.h"
#include "allocator/runs.h"
#include "allocator/sample.h"
#include "allocator/sites.h"
#include "allocator/slabs.h"
#include "allocator/start.h"
#include "allocator/table.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

/*
 * Blocks go to and from caches in batches of so many bytes and blocks; a cache has room for
 * two. Arrays begin small, so that a program that uses little touches few pages of them.
 */
#define BATCH_BYTES ((size_t)16 * PIN_KIB)
#define BATCH_MOST  256
#define BATCH_LEAST 4
#define FIRST_FILL  8
#define FIRST_ROOM  16
#define SMALL_ARRAY 16

#define GUARDS	    2 /* the words in front of each array */
#define MAX_THREADS 65536
#define MAX_SHARE   16 /* of the heap's addresses, where they are few */

/* The arrays' places in a cache, behind the structure. */
PIN_WRITTEN_FIRST static struct {
	uint32_t offset; /* bytes */
	uint32_t batch;	 /* blocks */
} layout[PIN_CLASSES];

/* A thread's, and of later threads when it has ended. Blocks are found by pin_mags. */
struct cache {
	struct cache *next;	    /* of those that nobody has */
	void **arrays[PIN_CLASSES]; /* NULL until the class is used */
	/* Bytes in blocks that it has got and not passed on; and what live.h has of them. */
	int64_t received, counted;
	int64_t expected;	 /* live memory when all of the last fill is in use, */
	unsigned expected_class; /* which was one of this class */
	unsigned n_small;
	unsigned depot;					       /* where its blocks come from */
	void *small_arrays[PIN_CLASSES][GUARDS + SMALL_ARRAY]; /* as classes are first used */
	struct pin_mag hidden[PIN_CLASSES]; /* used instead of pin_mags if pin_is_watched */
};

/* What an array is that has no blocks and no room. */
PIN_WRITTEN_FIRST static void *nothing[GUARDS];
#define NOTHING ((struct pin_mag){nothing + GUARDS, nothing + GUARDS})

__thread struct pin_mag pin_mags[PIN_CLASSES] = {
	[0 ... PIN_CLASSES - 1] = {nothing + GUARDS, nothing + GUARDS}};
static __thread struct cache *own __attribute__((tls_model("initial-exec")));
/* A thread whose cache is gone gets no other: nobody would take its blocks. */
static __thread bool has_ended __attribute__((tls_model("initial-exec")));
static __thread uint8_t n_frees __attribute__((tls_model("initial-exec")));

PIN_WRITTEN_FIRST static struct pin_table caches;
PIN_WRITTEN_FIRST static struct cache *unused;
PIN_WRITTEN_FIRST static uint32_t n_caches;
PIN_WRITTEN_FIRST static struct pin_flag caches_lock;
PIN_WRITTEN_FIRST static pthread_key_t key;
PIN_WRITTEN_FIRST static _Atomic bool is_ready;

static struct pin_mag *mag_of(struct cache *cache, unsigned class)
{
	return pin_is_watched ? &cache->hidden[class] : &pin_mags[class];
}

static unsigned blocks_in(struct cache *cache, unsigned class)
{
	void **array = cache->arrays[class];

	return array ? (unsigned)(mag_of(cache, class)->top - array) : 0;
}

static unsigned room_in(struct cache *cache, unsigned class)
{
	void **array = cache->arrays[class];

	return array ? (unsigned)(mag_of(cache, class)->full - array) : 0;
}

static int64_t bytes_in(struct cache *cache)
{
	int64_t n = 0;

	for (unsigned i = 0; i < PIN_CLASSES; i++)
		n += (int64_t)blocks_in(cache, i) * pin_class_sizes[i];
	return n;
}

int64_t pin_cache_uncounted(void)
{
	return own ? own->received - bytes_in(own) - own->counted : 0;
}

static void count_all(struct cache *cache)
{
	int64_t change = pin_cache_uncounted();

	cache->counted += change;
	pin_live_count_small(change);
	pin_live_look();
}

/* Changes of less than this are counted with later ones. */
#define SLACK ((int64_t)(32 * PIN_KIB))

/* Returns what is not counted yet. */
static int64_t count(struct cache *cache)
{
	int64_t change = pin_cache_uncounted();

	if (change <= SLACK && change >= -SLACK)
		return change;
	count_all(cache);
	return 0;
}

/*
 * What the cache was filled with last was in use before it has so much of that class that it is
 * full, but nobody counted then: the peak may have been higher by so much.
 */
static void expect(struct cache *cache, int64_t uncounted, unsigned n, unsigned class)
{
	cache->expected = pin_live_sum() + uncounted + (int64_t)n * pin_class_sizes[class];
	cache->expected_class = class;
}

static void count_back(struct cache *cache, unsigned class)
{
	if (class == cache->expected_class)
		pin_live_look_back(cache->expected);
	count(cache);
}

static void count_without_cache(int64_t n_bytes)
{
	pin_live_count_small(n_bytes);
	pin_live_look();
}

static void put_back(unsigned class, void **blocks, unsigned n)
{
	const void *wrong = pin_slabs_put(class, blocks, n);

	if (PIN_UNLIKELY(wrong != NULL))
		pin_misuse_end_later(wrong);
}

/* --- threads ---------------------------------------------------------------------- */

static void empty_cache(struct cache *cache)
{
	for (unsigned i = 0; i < PIN_CLASSES; i++) {
		unsigned n = blocks_in(cache, i);

		if (!n)
			continue;
		mag_of(cache, i)->top = cache->arrays[i];
		cache->received -= (int64_t)n * pin_class_sizes[i];
		put_back(i, cache->arrays[i], n);
	}
}

static void end_thread(void *arg)
{
	struct cache *cache = arg;

	count_all(cache);
	empty_cache(cache);
	for (unsigned i = 0; i < PIN_CLASSES; i++)
		pin_mags[i] = NOTHING;
	own = NULL;
	has_ended = true;
	pin_flag_lock(&caches_lock);
	cache->next = unused;
	unused = cache;
	pin_flag_unlock(&caches_lock);
}

static size_t lay_out(void)
{
	size_t offset = PIN_ALIGN_UP(sizeof(struct cache), PIN_UNIT);

	for (unsigned i = 0; i < PIN_CLASSES; i++) {
		size_t n = BATCH_BYTES / pin_class_sizes[i];

		n = n > BATCH_MOST ? BATCH_MOST : n < BATCH_LEAST ? BATCH_LEAST : n;
		layout[i].batch = (uint32_t)n;
		layout[i].offset = (uint32_t)offset;
		offset += (GUARDS + 2 * n) * sizeof(void *);
	}
	return PIN_ALIGN_UP(offset, PIN_UNIT);
}

/* Before fork(): no other thread may hold these locks while the process is copied. */
static void lock_all(void)
{
	pin_sites_lock();
	pin_flag_lock(&caches_lock);
	pin_slabs_lock();
	pin_runs_take_lock();
}

static void unlock_all(void)
{
	pin_runs_release_lock();
	pin_slabs_unlock();
	pin_flag_unlock(&caches_lock);
	pin_sites_unlock();
}

static PIN_COLD bool start(void)
{
	size_t size, most;

	if (!pin_start_memory())
		return false;
	size = lay_out();
	most = pin_reserve.size / MAX_SHARE / size;
	pin_live_set_uncounted(pin_cache_uncounted);
	if (pin_table_init(&caches, size, most < MAX_THREADS ? most : MAX_THREADS) ||
	    pthread_key_create(&key, end_thread))
		return false;
	pin_slabs_init();
	pin_locks_set_own(lock_all, unlock_all);
	is_ready = true;
	if (!pin_heap_keep_spare())
		pin_error(PIN_SAYS_NO_MEMORY ": raise ulimit -v and ulimit -d");
	pin_live_skip_growth();
	return true;
}

bool pin_start_heap(void)
{
	PIN_WRITTEN_FIRST static struct pin_flag lock;
	bool is_started;

	if (PIN_LIKELY(is_ready))
		return true;
	/* Threads may allocate with a malloc of the program's own until they call this. */
	pin_flag_lock(&lock);
	is_started = is_ready || start();
	pin_flag_unlock(&lock);
	return is_started;
}

/* The first thread's: most programs have one, and need no system call for it. */
static union {
	struct cache cache;
	char room[96 * PIN_KIB];
} first_cache;

static struct cache *take_unused(void)
{
	struct cache *cache;

	pin_flag_lock(&caches_lock);
	cache = unused;
	if (cache) {
		unused = cache->next;
	} else if (!n_caches && caches.element_size <= sizeof first_cache) {
		cache = &first_cache.cache;
		cache->depot = pin_slabs_depot(n_caches++);
	} else if (!pin_table_ensure(&caches, n_caches + 1)) {
		cache = (void *)(caches.base + n_caches * caches.element_size);
		cache->depot = pin_slabs_depot(n_caches++);
	}
	pin_flag_unlock(&caches_lock);
	return cache;
}

/* The calling thread's cache; NULL if it has none. */
static PIN_COLD struct cache *enter(void)
{
	int saved = errno;
	struct cache *cache;

	if (has_ended || !pin_start_heap())
		return NULL;
	cache = take_unused();
	if (!cache)
		return NULL;
	cache->received = cache->counted = cache->expected = 0;
	cache->n_small = 0;
	for (unsigned i = 0; i < PIN_CLASSES; i++) {
		cache->arrays[i] = NULL;
		*mag_of(cache, i) = NOTHING;
	}
	pin_is_inside = true;
	pthread_setspecific(key, cache);
	pin_is_inside = false;
	own = cache;
	errno = saved;
	return cache;
}

static inline struct cache *cache_here(void)
{
	return PIN_LIKELY(own != NULL) ? own : enter();
}

/* --- small blocks ----------------------------------------------------------------- */

/* Gives an array room for so many blocks; those in it stay. */
static void set_room(struct cache *cache, unsigned class, unsigned room)
{
	struct pin_mag *mag = mag_of(cache, class);
	void **from = cache->arrays[class], **to;
	unsigned n = blocks_in(cache, class);

	if (room > SMALL_ARRAY)
		to = (void **)(void *)((char *)cache + layout[class].offset) + GUARDS;
	else
		to = from ? from : cache->small_arrays[cache->n_small++] + GUARDS;
	if (n && to != from)
		memcpy(to, from, n * sizeof *to);
	cache->arrays[class] = to;
	mag->top = to + n;
	mag->full = to + room;
}

/*
 * What is aside, when there is no other memory but new one. Then a little may be touched anew,
 * also if this was enough: a program that needs what is aside would have it set free for ever.
 */
static PIN_COLD void set_free(void)
{
	if (own)
		empty_cache(own);
	pin_slabs_give();
	pin_runs_allow_little();
}

void *pin_cache_alloc_large(size_t n_bytes, size_t alignment, size_t *n_used)
{
	void *p = pin_large_alloc(n_bytes, alignment, false, n_used);

	if (PIN_LIKELY(p != NULL))
		return p;
	if (pin_large_is_possible(n_bytes, alignment)) {
		set_free();
		p = pin_large_alloc(n_bytes, alignment, true, n_used);
	}
	if (PIN_UNLIKELY(!p))
		errno = ENOMEM;
	return p;
}

/*
 * Blocks from wherever they are. Before jemalloc touches memory that nobody has used, all that
 * is aside is set free.
 */
static unsigned get_blocks(unsigned depot, unsigned class, void **blocks, unsigned n)
{
	unsigned got = pin_slabs_take(depot, class, blocks, n);

	if (!got)
		got = pin_slabs_grow(depot, class, blocks, n, true);
	if (!got)
		got = pin_slabs_take_any(class, blocks, n);
	if (PIN_LIKELY(got))
		return got;
	set_free();
	pin_large_flush();
	return pin_slabs_grow(depot, class, blocks, n, false);
}

/*
 * The first fills of a class are small, and each may be twice as large as the one before: a
 * thread or program that soon ends would return most of a full cache.
 */
static void *fill(struct cache *cache, unsigned class)
{
	unsigned batch = layout[class].batch, had = room_in(cache, class), room, n;
	struct pin_mag *mag = mag_of(cache, class);

	n = had ? 2 * had : FIRST_FILL;
	n = n < batch ? n : batch;
	room = 2 * had > FIRST_ROOM ? 2 * had : FIRST_ROOM;
	set_room(cache, class, room < 2 * batch ? room : 2 * batch);
	n = get_blocks(cache->depot, class, mag->top, n);
	if (PIN_UNLIKELY(!n))
		return NULL;
	mag->top += n;
	cache->received += (int64_t)n * pin_class_sizes[class];
	expect(cache, count(cache), n, class);
	return *--mag->top;
}

static void *alloc_small(size_t n_bytes)
{
	unsigned class = pin_class_of(n_bytes);
	struct cache *cache;
	struct pin_mag *mag;
	size_t n_used;
	void *p;

	if (PIN_UNLIKELY(pin_is_inside))
		return pin_large_alloc(n_bytes, 1, true, &n_used);
	cache = cache_here();
	if (PIN_UNLIKELY(!cache)) {
		if (!is_ready || !get_blocks(0, class, &p, 1))
			return NULL;
		count_without_cache(pin_class_sizes[class]);
		return p;
	}
	mag = mag_of(cache, class);
	/* Before it had a cache the thread could not take what it has. */
	return mag->top[-1] ? *--mag->top : fill(cache, class);
}

static void make_room(struct cache *cache, unsigned class)
{
	unsigned batch = layout[class].batch;
	struct pin_mag *mag = mag_of(cache, class);
	void **array;

	if (room_in(cache, class) < 2 * batch) {
		set_room(cache, class, 2 * batch);
		return;
	}
	array = cache->arrays[class];
	put_back(class, array, batch);
	memmove(array, array + batch, (size_t)(mag->top - array - batch) * sizeof *array);
	mag->top -= batch;
	cache->received -= (int64_t)batch * pin_class_sizes[class];
	count_back(cache, class);
}

/* A thread that only frees a few blocks, as when it ends, gets no cache. */
#define FREES_BEFORE_CACHE 32

static void free_small(void *p, unsigned class)
{
	struct cache *cache = own;
	struct pin_mag *mag;

	if (PIN_UNLIKELY(!cache) && !has_ended && ++n_frees == FREES_BEFORE_CACHE)
		cache = enter();
	if (PIN_UNLIKELY(!cache)) {
		n_frees = n_frees == FREES_BEFORE_CACHE ? 0 : n_frees;
		put_back(class, &p, 1);
		count_without_cache(-(int64_t)pin_class_sizes[class]);
		return;
	}
	mag = mag_of(cache, class);
	if (PIN_UNLIKELY(mag->top[-1] == p || mag->top[-2] == p))
		pin_misuse_end(p, "free", true);
	if (mag->top == mag->full)
		make_room(cache, class);
	*mag->top++ = p;
}

/* --- any blocks ------------------------------------------------------------------- */

/* As jemalloc with the option "junk". */
#define PERTURBED_NEW	0xa5
#define PERTURBED_FREED 0x5a

PIN_COLD bool pin_see_new(void *p, size_t n_bytes, bool picked)
{
	if (pin_options.perturb)
		memset(p, PERTURBED_NEW, n_bytes);
	if (pin_is_large(p))
		pin_sample_new(p, picked);
	return pin_options.perturb;
}

static PIN_COLD void see_freed(void *p, size_t n_bytes)
{
	if (pin_options.perturb)
		memset(p, PERTURBED_FREED, n_bytes);
	if (pin_is_large(p))
		pin_sample_freed(pin_sample_of(p));
}

/* A small block that is picked is a large one. */
static PIN_COLD void *malloc_watched(size_t n_bytes)
{
	bool is_small = n_bytes <= PIN_SMALL_MOST, picked;
	size_t n_used;
	void *p;

	n_bytes = is_small ? pin_class_sizes[pin_class_of(n_bytes)] : n_bytes;
	picked = pin_sample_due(n_bytes);
	if (is_small && !picked)
		p = alloc_small(n_bytes);
	else
		p = pin_start_heap() ? pin_cache_alloc_large(n_bytes, 1, &n_used) : NULL;
	if (PIN_UNLIKELY(!p)) {
		errno = ENOMEM;
		return NULL;
	}
	pin_live_settle_growth();
	pin_see_new(p, n_bytes, picked);
	pin_live_look();
	return p;
}

void *pin_malloc_slowly(size_t n_bytes)
{
	size_t n_used;
	void *p;

	/* Only then it is known whether it is watched. */
	if (PIN_UNLIKELY(!pin_start_heap())) {
		errno = ENOMEM;
		return NULL;
	}
	if (PIN_UNLIKELY(pin_is_watched))
		return malloc_watched(n_bytes);
	if (n_bytes <= PIN_SMALL_MOST)
		p = alloc_small(n_bytes);
	else
		p = pin_cache_alloc_large(n_bytes, 1, &n_used);
	if (PIN_UNLIKELY(!p)) {
		errno = ENOMEM;
		return NULL;
	}
	pin_live_settle_growth();
	if (n_bytes > PIN_SMALL_MOST)
		pin_live_look();
	return p;
}

static void free_large(void *p)
{
	if (PIN_UNLIKELY(pin_is_watched) && pin_is_large(p))
		see_freed(p, pin_large_usable(p));
	if (PIN_UNLIKELY(!pin_large_free(p)))
		pin_misuse_end(p, "free", true);
}

void pin_free_slowly(void *p)
{
	unsigned kind = pin_kind_of(p);

	if (kind == PIN_KIND_LARGE) {
		free_large(p);
	} else if (kind - 1u < PIN_CLASSES) {
		if (PIN_UNLIKELY(pin_is_watched))
			see_freed(p, pin_class_sizes[kind - 1]);
		free_small(p, kind - 1);
	} else if (p) {
		pin_misuse_end(p, "free", true);
	}
}
