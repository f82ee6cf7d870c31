/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/timeline.h"
#include "allocator/os.h"
#include "allocator/span.h"

#include <string.h>

/* The minimum change before a moment is added: in bytes, or as a share of the heap. */
#define MIN_CHANGE    PIN_MIB
#define SHARE_OF_HEAP 128

_Atomic size_t pin_timeline_low, pin_timeline_high;

/* Protected by `busy`, a try-lock: a thread that finds it set skips its moment. */
static struct pin_moment moments[PIN_TIMELINE_MOMENTS];
static uint64_t spacing; /* ns between moments other than growth */
static _Atomic size_t n_moments;
static _Atomic bool busy;
PIN_WRITTEN_FIRST static const _Atomic size_t *pinned_now;

void pin_timeline_set_pinned(const _Atomic size_t *pinned)
{
	pinned_now = pinned;
}

/*
 * Merges a later moment into one: the higher memory in use, and the heap's size at the later
 * one.
 */
static void merge_moments(struct pin_moment *into, const struct pin_moment *later)
{
	size_t pinned = into->pinned > later->pinned ? into->pinned : later->pinned;

	if (later->live > into->live)
		into->live = later->live;
	into->mapped = later->mapped;
	into->pinned = pinned;
}

/* Makes room by merging each two moments. */
static void merge_pairs(void)
{
	const size_t n = PIN_TIMELINE_MOMENTS / 2;

	for (size_t i = 0; i < n; i++) {
		struct pin_moment both = moments[2 * i];

		merge_moments(&both, &moments[2 * i + 1]);
		moments[i] = both;
	}
	atomic_store(&n_moments, n);
	spacing = (moments[n - 1].ns - moments[0].ns) / n;
}

/* Sets the bounds of memory in use beyond which the next moment is added. */
static void set_bounds(size_t live)
{
	size_t change = pin_span_bytes() / SHARE_OF_HEAP;

	if (change < MIN_CHANGE)
		change = MIN_CHANGE;
	atomic_store_explicit(&pin_timeline_low, live > change ? live - change : 0,
			      memory_order_relaxed);
	atomic_store_explicit(&pin_timeline_high, live + change, memory_order_relaxed);
}

/*
 * Beyond those so far. A program that takes and frees a large block again and again would come
 * here each time, to change nothing.
 */
static void widen_bounds(size_t live)
{
	size_t low = pin_timeline_low, high = pin_timeline_high;

	set_bounds(live);
	if (low < pin_timeline_low)
		pin_timeline_low = low;
	if (high > pin_timeline_high)
		pin_timeline_high = high;
}

static void add_moment(size_t live, bool grew)
{
	struct pin_moment now = {
		.ns = pin_os_now_ns(), .live = live, .mapped = pin_span_bytes()};
	size_t n = n_moments;

	if (pinned_now)
		now.pinned = atomic_load_explicit(pinned_now, memory_order_relaxed);
	if (n && !grew && now.ns - moments[n - 1].ns < spacing) {
		merge_moments(&moments[n - 1], &now);
		widen_bounds(live);
		return;
	}
	set_bounds(live);
	if (n == PIN_TIMELINE_MOMENTS)
		merge_pairs();
	moments[n_moments] = now;
	atomic_fetch_add(&n_moments, 1);
}

static void try_add_moment(size_t live, bool grew)
{
	if (atomic_exchange_explicit(&busy, true, memory_order_acquire))
		return;
	add_moment(live, grew);
	atomic_store_explicit(&busy, false, memory_order_release);
}

PIN_COLD void pin_timeline_note(size_t live)
{
	try_add_moment(live, false);
}

void pin_timeline_grew(size_t live)
{
	try_add_moment(live, true);
}

void pin_timeline_begin_anew(void)
{
	atomic_store(&busy, false);
	atomic_store(&n_moments, 0);
	spacing = 0;
	pin_timeline_high = 0;
}

size_t pin_timeline_read(struct pin_moment *out)
{
	bool taken = false;
	size_t n;

	/*
	 * Another thread that adds a moment is done soon; a thread that this signal
	 * interrupted never is.
	 */
	for (int i = 0; i < 10000 && !taken; i++)
		taken = !atomic_exchange_explicit(&busy, true, memory_order_acquire);
	n = n_moments;
	memcpy(out, moments, n * sizeof *out);
	if (taken)
		atomic_store_explicit(&busy, false, memory_order_release);
	return n;
}
