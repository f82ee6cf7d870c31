/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/timeline.h"
#include "allocator/os.h"
#include "allocator/span.h"

#include <string.h>

/* What must change at least before a moment is noted: bytes, or a share of it all. */
#define LEAST_CHANGE PIN_MIB
#define SHARE	     128

_Atomic size_t pin_timeline_low, pin_timeline_high;

/* Under `busy`, which nobody waits for: whoever finds it set leaves out a moment. */
static struct pin_moment moments[PIN_TIMELINE_MOMENTS];
static uint64_t spacing; /* ns between moments that are no growth */
static _Atomic size_t count;
static _Atomic bool busy;
static const _Atomic size_t *pinned_now;

void pin_timeline_set_pinned(const _Atomic size_t *pinned)
{
	pinned_now = pinned;
}

/* A moment that lasts: the higher of two, with the heap as it was at the later. */
static void merge(struct pin_moment *into, const struct pin_moment *later)
{
	size_t pinned = into->pinned > later->pinned ? into->pinned : later->pinned;

	if (later->live > into->live)
		into->live = later->live;
	into->mapped = later->mapped;
	into->pinned = pinned;
}

/* All places are taken. */
static void halve(void)
{
	const size_t n = PIN_TIMELINE_MOMENTS / 2;

	for (size_t i = 0; i < n; i++) {
		struct pin_moment both = moments[2 * i];

		merge(&both, &moments[2 * i + 1]);
		moments[i] = both;
	}
	atomic_store(&count, n);
	spacing = (moments[n - 1].ns - moments[0].ns) / n;
}

/* The next moment is noted when the program holds this much less or more. */
static void set_bounds(size_t live)
{
	size_t change = pin_span_bytes() / SHARE;

	if (change < LEAST_CHANGE)
		change = LEAST_CHANGE;
	atomic_store_explicit(&pin_timeline_low, live > change ? live - change : 0,
			      memory_order_relaxed);
	atomic_store_explicit(&pin_timeline_high, live + change, memory_order_relaxed);
}

static void put(size_t live, bool grew)
{
	struct pin_moment now = {
		.ns = pin_os_now_ns(), .live = live, .mapped = pin_span_bytes()};
	size_t n = count;

	if (pinned_now)
		now.pinned = atomic_load_explicit(pinned_now, memory_order_relaxed);
	set_bounds(live);
	if (n && !grew && now.ns - moments[n - 1].ns < spacing) {
		merge(&moments[n - 1], &now);
		return;
	}
	if (n == PIN_TIMELINE_MOMENTS)
		halve();
	moments[count] = now;
	atomic_fetch_add(&count, 1);
}

static void note(size_t live, bool grew)
{
	if (atomic_exchange_explicit(&busy, true, memory_order_acquire))
		return;
	put(live, grew);
	atomic_store_explicit(&busy, false, memory_order_release);
}

PIN_COLD void pin_timeline_note(size_t live)
{
	note(live, false);
}

void pin_timeline_grew(size_t live)
{
	note(live, true);
}

size_t pin_timeline_read(struct pin_moment *out)
{
	bool taken = false;
	size_t n;

	/* Whoever notes a moment is done soon, or is the thread that was interrupted. */
	for (int i = 0; i < 10000 && !taken; i++)
		taken = !atomic_exchange_explicit(&busy, true, memory_order_acquire);
	n = count;
	memcpy(out, moments, n * sizeof *out);
	if (taken)
		atomic_store_explicit(&busy, false, memory_order_release);
	return n;
}
