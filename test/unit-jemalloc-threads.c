/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What allocator/jemalloc.h and jemalloc-layout.h say of a thread's state, its cache, the
 * profiler and jemalloc's variables, compared with what jemalloc does and with what it says by
 * mallctl().
 */
#include <config.h>

#include "allocator/jemalloc.h"
#include "allocator/live.h"
#include "allocator/options.h"
#include "allocator/sample.h"
#include "test/mallctl.h"
#include "test/tap.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jemalloc/jemalloc.h>

#define SMALL	   64
#define LARGE	   (49 * JE_PAGE - 704)
#define LARGEST	   ((size_t)8 << 20) /* that a cache can have */
#define MANY	   1000
#define MANY_BYTES ((size_t)300 << 10) /* more than between two events */

/* The last sample, and whether jemalloc is to have no profiler. */
static struct {
	const void *tctx;
	size_t n_bytes, n_usable;
} taken, freed;
static bool without_profiler;

void __wrap_pin_sample_taken(void *tctx, size_t n_bytes, size_t n_usable);
void __wrap_pin_sample_freed(void *tctx, size_t n_bytes, size_t n_usable);
int __wrap_mallctl(const char *name, void *old, size_t *old_size, void *value, size_t size);
int __real_mallctl(const char *name, void *old, size_t *old_size, void *value, size_t size);

void __wrap_pin_sample_taken(void *tctx, size_t n_bytes, size_t n_usable)
{
	taken.tctx = tctx;
	taken.n_bytes = n_bytes;
	taken.n_usable = n_usable;
}

void __wrap_pin_sample_freed(void *tctx, size_t n_bytes, size_t n_usable)
{
	freed.tctx = tctx;
	freed.n_bytes = n_bytes;
	freed.n_usable = n_usable;
}

int __wrap_mallctl(const char *name, void *old, size_t *old_size, void *value, size_t size)
{
	if (without_profiler && !strcmp(name, "config.prof")) {
		*(bool *)old = false;
		return 0;
	}
	if (without_profiler && strstr(name, "prof"))
		return ENOENT;
	return __real_mallctl(name, old, old_size, value, size);
}

static bool yes(const char *name)
{
	bool is = false;
	size_t size = sizeof is;

	mallctl(name, &is, &size, NULL, 0);
	return is;
}

static const char *text(const char *name)
{
	const char *value = "";
	size_t size = sizeof value;

	mallctl(name, &value, &size, NULL, 0);
	return value;
}

static void variables(void)
{
	unsigned arena = 0, n_before = je_narenas_total_get();
	size_t size = sizeof arena;

	ok(!je_malloc_init_state, "jemalloc is ready");
	ok(je_narenas_auto == n_before && n_before == figure("arenas.narenas"),
	   "arenas at first");
	mallctl("arenas.create", &arena, &size, NULL, 0);
	ok(je_narenas_total_get() == n_before + 1 && je_narenas_auto == n_before &&
		   arena == n_before && je_arenas[arena] && !je_arenas[arena + 1],
	   "one that the program makes comes behind them");
	ok(je_opt_narenas == figure("opt.narenas") && je_opt_narenas == 3, "opt.narenas");
	ok(je_opt_tcache_max == figure("opt.tcache_max"), "opt.tcache_max");
	ok(!yes("config.prof") || je_opt_lg_prof_sample == figure("opt.lg_prof_sample"),
	   "opt.lg_prof_sample");
	ok(je_opt_cache_oblivious == yes("opt.cache_oblivious") && !je_opt_cache_oblivious &&
		   !je_sz_large_pad,
	   "opt.cache_oblivious, and what jemalloc makes of it");
	je_opt_cache_oblivious = je_opt_prof_active = true;
	ok(yes("opt.cache_oblivious") && yes("opt.prof_active") == yes("config.prof"),
	   "which are these");
	je_opt_cache_oblivious = je_opt_prof_active = false;
	ok(je_opt_prof == yes("opt.prof"), "opt.prof");
	ok(!strcmp(text("opt.thp"), je_thp_mode_names[je_opt_thp]), "opt.thp");
	ok(!strcmp(text("opt.dss"), je_opt_dss), "opt.dss");
	ok(strstr(malloc_conf_2_conf_harder, "dirty_decay_ms:-1") &&
		   figure("opt.dirty_decay_ms") == (size_t)-1,
	   "the options that come last");
}

static void in_arena(unsigned arena)
{
	mallctl("thread.arena", NULL, NULL, &arena, sizeof arena);
}

static bool is_arena(const void *p)
{
	for (unsigned i = 0; i < je_narenas_total_get(); i++)
		if (je_arenas[i] == p)
			return true;
	return false;
}

static void arenas(void)
{
	struct je_tsd *tsd = je_tsd_here();
	const void *for_itself = tsd->arena_for_itself;

	in_arena(1);
	ok(tsd->arena == je_arenas[1], "a thread's arena");
	in_arena(2);
	ok(tsd->arena == je_arenas[2], "is another then");
	ok(tsd->arena_for_itself == for_itself && is_arena(for_itself),
	   "jemalloc's own of a thread stays");
	in_arena(0);
}

static void counters(void)
{
	struct je_tsd *tsd = je_tsd_here();
	uint64_t *allocated = NULL, *deallocated = NULL, next_freed, next_allocated;
	size_t size = sizeof allocated;
	void *p;

	mallctl("thread.allocatedp", &allocated, &size, NULL, 0);
	mallctl("thread.deallocatedp", &deallocated, &size, NULL, 0);
	ok(allocated == &tsd->n_allocated && deallocated == &tsd->n_freed,
	   "a thread's counters");
	next_freed = tsd->next_freed_event;
	next_allocated = tsd->next_allocated_event;
	p = malloc(MANY_BYTES);
	ok(tsd->next_allocated_event > tsd->n_allocated && next_allocated <= tsd->n_allocated &&
		   tsd->next_freed_event == next_freed,
	   "an event is due when so much is allocated");
	next_allocated = tsd->next_allocated_event;
	free(p);
	ok(tsd->next_freed_event > tsd->n_freed && next_freed <= tsd->n_freed &&
		   tsd->next_allocated_event == next_allocated,
	   "and when so much is freed");
	ok(pin_live_thread.counters[PIN_LIVE_ALLOCATED] == allocated &&
		   pin_live_thread.counters[PIN_LIVE_FREED] == deallocated,
	   "which are known since then");
}

static void without_cache(void)
{
	struct je_tsd *tsd = je_tsd_here();
	bool is = false;

	ok(tsd->has_cache && (char *)tsd->cache > (char *)tsd &&
		   (void **)tsd->cache < &tsd->cache,
	   "a thread has a cache, whose other half is before it");
	mallctl("thread.tcache.enabled", NULL, NULL, &is, sizeof is);
	ok(!tsd->has_cache, "or has none");
	ok(!tsd->next_allocated_event && !tsd->next_freed_event, "and then always an event");
	is = true;
	mallctl("thread.tcache.enabled", NULL, NULL, &is, sizeof is);
	ok(tsd->has_cache && tsd->next_allocated_event, "and has one again");
}

static struct je_cache_bin *bin_of(size_t n_bytes)
{
	return &je_tsd_here()->bins[je_sz_size2index_tab[(n_bytes + 7) / 8]];
}

static size_t cached_bytes(void)
{
	size_t n = 0;

	for (unsigned i = 0; i < je_nhbins; i++)
		n += je_cached(&je_tsd_here()->bins[i]) * je_sz_index2size_tab[i];
	return n;
}

/* The most that a cache has when MANY are freed. */
static unsigned most_cached(void *blocks[])
{
	unsigned n, most = 0;

	for (size_t i = 0; i < MANY; i++)
		blocks[i] = malloc(SMALL);
	for (size_t i = 0; i < MANY; i++) {
		free(blocks[i]);
		n = je_cached(bin_of(SMALL));
		most = n > most ? n : most;
	}
	return most;
}

static void bins(void)
{
	struct je_cache_bin *bin = bin_of(SMALL);
	void *blocks[MANY], *p = malloc(SMALL), *q = malloc(SMALL);
	unsigned n = je_cached(bin);
	size_t requests;

	free(p);
	free(q);
	ok(je_cached(bin) == n + 2 && bin->head[0] == q && bin->head[1] == p,
	   "blocks in a cache, the last one freed first");
	ok(malloc(SMALL) == q && je_cached(bin) == n + 1, "which are had again");
	ok(most_cached(blocks) == je_cached_from(bin, bin->full), "as many as it has room for");
	/* Until jemalloc has looked at this cache. */
	for (int i = 0; i < MANY && bin->least == bin->empty; i++)
		free(malloc(MANY_BYTES));
	ok(bin->least != bin->empty && je_cached_from(bin, bin->least) <= je_cached(bin),
	   "some of which were there all the time");
	ok(figure("stats.arenas.0.tcache_bytes") == cached_bytes(), "their bytes");
	mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
	ok(!je_cached(bin) && bin->least == bin->empty &&
		   figure("stats.arenas.0.tcache_bytes") == 0,
	   "there is none when it is emptied, and since then it had none");
	requests = figure("stats.arenas.0.bins.4.nrequests");
	bin->n_requests += 12345;
	bin->last_fill = 77;
	mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
	ok(figure("stats.arenas.0.bins.4.nrequests") == requests + 12345 && !bin->n_requests,
	   "the requests that are counted");
	ok(bin->last_fill == 77, "and what jemalloc does not use");
	bin->last_fill = 0;
}

/* In a process of its own, with the largest caches and with bins by threads. */
static void *bins_of_thread(void *other)
{
	free(malloc(SMALL));
	memcpy(other, je_tsd_here()->bins_of_arena, JE_SMALL_CLASSES);
	return NULL;
}

static bool is_good_with_more(void)
{
	struct je_cache_bin *bin = &je_tsd_here()->bins[JE_CACHED_CLASSES - 1];
	uint8_t numbers[JE_SMALL_CLASSES];
	void *p = malloc(LARGEST);
	pthread_t thread;

	free(p);
	pthread_create(&thread, NULL, bins_of_thread, numbers);
	pthread_join(thread, NULL);
	printf("# %u %zu %d %d %d %d\n", je_nhbins, (size_t)JE_CACHED_CLASSES, numbers[0],
	       numbers[1], numbers[JE_SMALL_CLASSES - 2], numbers[JE_SMALL_CLASSES - 1]);
	return je_nhbins == JE_CACHED_CLASSES && je_cached(bin) == 1 && *bin->head == p &&
	       numbers[0] == 1 && !numbers[1] && !numbers[JE_SMALL_CLASSES - 2] &&
	       numbers[JE_SMALL_CLASSES - 1] == 1;
}

/* In another one, where every block is a sample. */
static bool is_good_sampled(void)
{
	void *p = malloc(LARGE);
	const void *tctx = taken.tctx;
	size_t n_bytes = taken.n_bytes, n_usable = taken.n_usable;

	free(p);
	printf("# %p %zu %zu\n", freed.tctx, freed.n_bytes, freed.n_usable);
	return tctx && freed.tctx == tctx && n_bytes == LARGE && freed.n_bytes == LARGE &&
	       n_usable == nallocx(LARGE, 0) && freed.n_usable == n_usable;
}

static void says_why_no_samples(void)
{
	char line[300] = "";
	int ends[2], old = dup(STDERR_FILENO);

	if (pipe(ends))
		return;
	dup2(ends[1], STDERR_FILENO);
	pin_options.sample = 65536;
	without_profiler = true;
	pin_sample_start();
	without_profiler = false;
	dup2(old, STDERR_FILENO);
	read(ends[0], line, sizeof line - 1) > 0 ? (void)0 : (void)strcpy(line, "nothing");
	printf("# %s", line);
	ok(strstr(line, "PINALLOC_SAMPLE has no effect: this jemalloc was built without its "
			"profiler"),
	   "without jemalloc's profiler that is what is said");
}

static bool is_good(const char *program, const char *conf, const char *what)
{
	char command[4096];

	snprintf(command, sizeof command, "MALLOC_CONF=%s '%s' %s", conf, program, what);
	return !system(command);
}

int main(int argc, char **argv)
{
	char shards[100];

	if (argc > 1)
		return strcmp(argv[1], "sampled") ? !is_good_with_more() : !is_good_sampled();
	if (!getenv("MALLOC_CONF")) {
		setenv("MALLOC_CONF", "narenas:3", 1);
		execv("/proc/self/exe", argv);
	}
	variables();
	arenas();
	counters();
	without_cache();
	bins();
	snprintf(shards, sizeof shards,
		 "narenas:1,lg_tcache_max:23,'bin_shards:8-8:4|%zu-%zu:3'", JE_SMALL_MOST,
		 JE_SMALL_MOST);
	ok(is_good(argv[0], shards, "more"),
	   "caches have room for so many classes, and threads take turns at an arena's bins");
	ok(!yes("config.prof") ||
		   is_good(argv[0], "prof:true,prof_active:true,lg_prof_sample:0", "sampled"),
	   "what the profiler keeps of a block");
	says_why_no_samples();
	return done_testing();
}
