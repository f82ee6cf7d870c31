/* SPDX-License-Identifier: BSD-2-Clause */
/* How peaks are recorded: how much is live, when, from which stacks. Without malloc. */
#include <config.h>

#include "allocator/hooks.h"
#include "allocator/live.h"
#include "allocator/options.h"
#include "allocator/reserve.h"
#include "allocator/sample.h"
#include "allocator/span.h"
#include "allocator/sites.h"
#include "allocator/timeline.h"
#include "test/beside.h"
#include "test/blocks.h"
#include "test/tap.h"

#include <string.h>

#define MIB ((int64_t)PIN_MIB)

static unsigned n_told, n_steps;

static void listener(bool is_due)
{
	n_told += is_due;
	n_steps += !is_due;
}

static bool is_now(size_t mib, size_t peak_mib)
{
	return pin_live_now() == mib * PIN_MIB && pin_live_peak().bytes == peak_mib * PIN_MIB;
}

/* Beside what the run map has. */
static void grow(size_t n_bytes)
{
	static struct pin_span *span;

	span_grow(&span, n_bytes, 0);
	pin_span_grown = 0;
}

static void held(void)
{
	ok(pin_live_now() == 0 && pin_live_peak().bytes == 0, "nothing is in use at the start");
	pin_live_count(-MIB);
	ok(pin_live_now() == 0,
	   "a block can be counted as freed before it is counted as allocated");
	pin_live_count(8 * MIB);
	ok(is_now(7, 7) && pin_live_peak().ns, "the peak rises with what is in use");
	pin_live_count(-MIB);
	ok(is_now(6, 7), "the peak stays when memory is freed");
	pin_hooks.note_memory = listener;
	pin_live_due = 8 * MIB;
	pin_timeline_stepped = false;
	pin_live_count(MIB);
	ok(!n_told && !n_steps, "who waits for a higher peak is not called before");
	pin_live_count(MIB);
	ok(n_told == 1, "but then");
	pin_live_due = 0;
	pin_timeline_stepped = false;
	pin_live_count(-4 * MIB);
	pin_live_count(2 * MIB);
	ok(n_told == 1 && n_steps == 2,
	   "and, as not due, from when the timeline has another step");
}

/* Pages of maps and lanes, with what is counted beside them. */
static void pages(void)
{
	struct pin_run_need need = {.n_pages = (uint32_t)(3 * PIN_MIB / PIN_UNIT),
				    .alignment = 1};
	size_t n_used;
	uint32_t page = pin_run_take(&need, &n_used);

	ok(is_now(9, 9), "pages are added to what else is counted");
	pin_run_give(page, need.n_pages);
	ok(pin_runs_out == (int64_t)need.n_pages && is_now(6, 8),
	   "those that lanes hold are not in use; no peak is known before it is looked at");
	ok(pin_run_take(&need, &n_used) == page && pin_live_now() == 9 * PIN_MIB,
	   "they are when they are taken again");
	pin_live_settle();
	pin_run_give(page, need.n_pages);
	ok(!pin_runs_passed && pin_live_peak().bytes == 9 * PIN_MIB, "then it is");
	need.n_pages *= 2;
	page = pin_run_take(&need, &n_used);
	pin_live_settle();
	ok(pin_live_peak().bytes == 12 * PIN_MIB, "the same memory counts once");
	pin_run_give(page, need.n_pages);
	pin_live_count(-6 * MIB);
}

/* Small steps up and down, of which the peak misses the last ones at most. */
static void nearly(void)
{
	int64_t now = 0, most = (int64_t)pin_live_peak().bytes, peak, step;
	bool near = true;

	for (unsigned i = 0, seed = 1; i < 200000; i++, now += step) {
		seed = seed * 1103515245 + 12345;
		step = (int64_t)(seed >> 8) % (80 * 1024) -
		       (i % 20000 < 14000 ? 36 : 44) * 1024;
		step = now + step < 0 ? -now : step;
		most = now + step > most ? now + step : most;
		pin_live_count(step);
		peak = (int64_t)pin_live_peak().bytes;
		near &= peak <= most && (most - peak <= 64 * 1024 || most - peak <= most / 256);
	}
	ok(near && most > 100 * MIB, "peaks up to %zu are known to a 256th", (size_t)most);
	pin_live_count((int64_t)pin_live_peak().bytes + 4096 - now);
	for (int i = 0; i < 64; i++)
		pin_live_look();
	most = (int64_t)pin_live_now();
	pin_live_count(-most);
	ok(pin_live_peak().bytes == (size_t)most, "and exactly after a while");
}

static void recent(void)
{
	size_t most = pin_live_peak().bytes;

	pin_live_count(7 * MIB);
	ok(pin_live_recent(true).bytes == most,
	   "until the first mark, the recent peak is the peak");
	pin_live_count(-4 * MIB);
	ok(pin_live_recent(true).bytes == 7 * PIN_MIB, "then it begins with what is in use");
	pin_live_count(2 * MIB);
	pin_live_count(-5 * MIB);
	ok(pin_live_recent(false).bytes == 5 * PIN_MIB && pin_live_peak().bytes == most,
	   "and rises again");
}

static size_t highest(const struct pin_moment *moments, size_t n)
{
	size_t most = 0;

	for (size_t i = 0; i < n; i++)
		if (moments[i].live > most)
			most = moments[i].live;
	return most;
}

static bool in_order(const struct pin_moment *moments, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (moments[i].ns < moments[i - 1].ns ||
		    moments[i].mapped < moments[i - 1].mapped)
			return false;
	return true;
}

static void timeline(void)
{
	static struct pin_moment moments[PIN_TIMELINE_MOMENTS];
	static _Atomic size_t pinned;
	size_t n = pin_timeline_read(moments), more, n_kept = 0;

	pin_hooks.pinned = &pinned;
	pinned = 3 * PIN_MIB;
	pin_timeline_note(PIN_MIB, true);
	more = pin_timeline_read(moments);
	ok(more == n + 1 && moments[n].live == PIN_MIB && moments[n].pinned == pinned,
	   "growth of the heap adds a moment");
	pin_timeline_update(PIN_MIB + 1000);
	ok(pin_timeline_read(moments) == more, "a small change of memory in use adds none");
	pin_timeline_update(5 * PIN_MIB);
	ok(pin_timeline_read(moments) == more + 1, "a large change adds one");
	pin_timeline_update(1000 * PIN_MIB);
	for (size_t i = 0; i < 100000; i++)
		pin_timeline_update((i % 2 ? 20 : 40) * PIN_MIB);
	n = pin_timeline_read(moments);
	ok(n > PIN_TIMELINE_MOMENTS / 4 && n <= PIN_TIMELINE_MOMENTS &&
		   highest(moments, n) == 1000 * PIN_MIB,
	   "100,000 changes give %zu moments, and the highest one is kept", n);
	for (size_t mib = 700; mib; mib -= 10) {
		pin_timeline_update(mib * PIN_MIB);
		n = pin_timeline_read(moments);
		if (moments[n - 1].live != mib * PIN_MIB)
			break;
	}
	ok(moments[n - 1].live == 10 * PIN_MIB, "and the last one, as memory in use falls");
	ok(in_order(moments, n), "moments are in order of time, and the heap never shrinks");
	for (size_t i = 0; i < 3 * PIN_TIMELINE_MOMENTS; i++)
		pin_timeline_note(i, true);
	n = pin_timeline_read(moments);
	ok(n <= PIN_TIMELINE_MOMENTS && highest(moments, n) == 1000 * PIN_MIB,
	   "so it is with any number of growths");
	for (size_t at = 0; at < 4; at++) {
		pin_timeline_begin_anew();
		for (size_t i = 0; i < 2 * PIN_TIMELINE_MOMENTS; i++)
			pin_timeline_note(i == at ? 1000 * PIN_MIB : i, true);
		n_kept += highest(moments, pin_timeline_read(moments)) == 1000 * PIN_MIB;
	}
	ok(n_kept == 4, "and wherever the highest one is");
	pin_live_begin_anew();
	ok(pin_timeline_read(moments) == 0, "a child begins with none");
}

static void *depth_of[PIN_SITE_FRAMES + 4];
static int depth;

static int walk(void **frames, int n)
{
	int taken = depth < n ? depth : n;

	memcpy(frames, depth_of, (size_t)taken * sizeof *frames);
	return taken;
}

/* The site of a stack of two frames, the inner one given. The next walk finds it, too. */
static struct pin_site *site_at(uintptr_t inner)
{
	depth_of[0] = (void *)inner;
	depth_of[1] = (void *)0x1000;
	depth = 2;
	return pin_sites_here();
}

static void sites(void)
{
	struct pin_site *a, *b, *top[3];

	ok(!pin_sites_here(), "no stack is recorded unless stacks are walked");
	pin_sites_grew(1);
	pin_hooks.walk_stack = walk;
	a = site_at(0x2000);
	pin_sites_grew(10 * PIN_MIB);
	b = site_at(0x3000);
	pin_sites_grew(20 * PIN_MIB);
	pin_sites_grew(1 * PIN_MIB);
	ok(a != b && a->depth == 2 && a->frames[0] == (void *)0x2000 && site_at(0x2000) == a,
	   "different stacks have different sites, the same stack has the same");
	ok(pin_sites_largest(false, top, 3) == 2 && top[0] == b && top[1] == a &&
		   b->grown_bytes == 21 * PIN_MIB && b->grown_count == 2,
	   "the site with the largest growth, in bytes and steps, comes first");
	ok(pin_sites_largest(false, top, 1) == 1 && top[0] == b,
	   "no more sites are returned than requested");
	depth = PIN_SITE_FRAMES + 4;
	ok(pin_sites_here()->depth == PIN_SITE_FRAMES, "a deep stack is truncated");
}

static void hold(struct pin_site *site, double bytes)
{
	pin_sites_add_held(site, (struct pin_held){bytes, bytes < 0 ? -1 : 1});
}

static void at_peak(void)
{
	struct pin_site *a = site_at(0x4000), *b = site_at(0x5000), *top[2];

	ok(pin_sites_largest(true, top, 2) == 0, "no site has memory in use at the start");
	hold(a, 100);
	hold(b, 30);
	pin_sites_note_peak();
	hold(a, -100);
	hold(b, 60);
	hold(b, -10);
	ok(pin_site_at_peak(a).bytes == 100 && pin_site_at_peak(b).bytes == 30 &&
		   pin_site_at_peak(a).count == 1,
	   "the amounts at the peak are those of that time, whatever comes later");
	ok(pin_sites_largest(true, top, 2) == 2 && top[0] == a,
	   "the site with most memory at the peak comes first");
	pin_sites_note_peak();
	ok(pin_site_at_peak(a).bytes == 0 && pin_site_at_peak(b).bytes == 80 &&
		   pin_sites_largest(true, top, 2) == 1 && top[0] == b,
	   "a higher peak replaces the amounts, and sites without any are left out");
}

/* Blocks of a 64th of a sample count for those that are not picked, too. */
static void samples(void)
{
	unsigned n_large = 0, n_small = 0;
	size_t n_used;
	void *block = pin_page_at(
		pin_run_take(&(struct pin_run_need){.n_pages = 1, .alignment = 1}, &n_used));
	struct pin_site *site = site_at(0x8000);

	pin_options.sample = 64000;
	for (int i = 0; i < 64000; i++) {
		n_large += i % 64 ? 0 : pin_sample_picks(32000);
		n_small += pin_sample_picks(1000);
	}
	ok(n_large == 1000, "blocks of half a sample are all picked");
	ok(n_small > 900 && n_small < 1100, "smaller ones by their size: %u of 1000", n_small);
	pin_page(pin_page_of(block))->asked = 1000;
	pin_sample_new(block, true);
	ok(site->now.bytes == 64000 && site->now.count == 64,
	   "and count with that of a sample");
	pin_sample_freed(pin_sample_of(block));
	ok(site->now.bytes == 0, "until they are freed");
}

#define THREADS 4

static void *hold_often(void *unused)
{
	for (int i = 0; i < PIN_SITES; i++)
		pin_sites_add_held(pin_sites_here(), (struct pin_held){1, 1});
	return unused;
}

/* Last: the table is full afterwards. */
static void full(void)
{
	struct pin_site *top[1];

	site_at(0x6000);
	in_threads(THREADS, hold_often);
	pin_sites_note_peak();
	pin_sites_largest(true, top, 1);
	ok(top[0]->now.count == THREADS * PIN_SITES, "concurrent threads lose no sample");
	for (uintptr_t i = 0; i < 2 * PIN_SITES; i++) {
		site_at(0x100000 + i);
		pin_sites_grew(1);
	}
	ok(site_at(0x100000 + 2 * PIN_SITES - 1)->depth == 0,
	   "a stack beyond the maximum number of sites is counted without frames");
	ok(site_at(0x100000)->frames[0] == (void *)0x100000, "earlier sites keep their frames");
}

int main(void)
{
	pin_options_init();
	ok(!pin_reserve_init() && !pin_pages_init(), "addresses are reserved");
	grow(64 * PIN_MIB);
	held();
	pages();
	timeline();
	grow(512 * PIN_MIB);
	nearly();
	recent();
	sites();
	at_peak();
	samples();
	full();
	return done_testing();
}
