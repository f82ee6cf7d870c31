/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/timeline.h"
#include "allocator/hooks.h"
#include "allocator/os.h"
#include "allocator/span.h"

#include <string.h>

/* The minimum change before a moment is added: in bytes, or as a share of the heap. */
#define MIN_CHANGE    PIN_MIB
#define SHARE_OF_HEAP 128

_Atomic size_t pin_timeline_low, pin_timeline_high;
_Atomic uint64_t pin_timeline_stepped;

/* Protected by `busy`, a try-lock: what a thread has that finds it set is the last value. */
static struct pin_moment moments[PIN_TIMELINE_MOMENTS];
static uint64_t spacing; /* ns of a while, which has two moments, and those of growth */
static _Atomic size_t n_moments;
static _Atomic bool busy;

/*
 * The while that goes on: the highest value has its moment, the last one gets it in the end.
 * Written without the lock: the time and the value may be those of two changes.
 */
static _Atomic uint64_t while_ends, last_ns; /* 0: no value after the highest */
static _Atomic size_t highest, last;

/*
 * Of each four moments keeps the last one, and of the others the one with most in use. Returns
 * how many are left.
 */
static size_t thin_out(void)
{
	const size_t all = n_moments, n = all / 4 * 2, left = all - n;

	for (size_t i = 0; i < n; i += 2) {
		const struct pin_moment *of = &moments[2 * i];
		size_t most = of[1].live > of[0].live;

		most = of[2].live > of[most].live ? 2 : most;
		moments[i] = of[most];
		moments[i + 1] = of[3];
	}
	memmove(&moments[n], &moments[2 * n], (left - n) * sizeof *moments);
	spacing = (moments[left - 1].ns - moments[0].ns) / (left / 2);
	return left;
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

/* Threads that have read the clock may come in another order. */
static size_t append(struct pin_moment *to, size_t n, uint64_t ns, size_t live)
{
	to[n] = (struct pin_moment){n && ns < to[n - 1].ns ? to[n - 1].ns : ns, live,
				    pin_span_bytes(), pin_hooks.pinned ? *pin_hooks.pinned : 0};
	return n + 1;
}

/* A highest value replaces the one before. */
static void add_moment(size_t live, uint64_t now, bool grew)
{
	size_t n = n_moments < PIN_TIMELINE_MOMENTS - 2 ? n_moments : thin_out();

	if (!grew && n && now < while_ends) {
		n--;
	} else {
		n = last_ns ? append(moments, n, last_ns, last) : n;
		while_ends = now + spacing;
	}
	last_ns = 0;
	highest = live;
	atomic_store(&n_moments, append(moments, n, now, live));
}

/* A program that takes and frees a large block again and again comes here each time. */
PIN_COLD void pin_timeline_note(size_t live, bool grew)
{
	uint64_t now = pin_os_now_ns();

	set_bounds(live);
	pin_timeline_stepped = now;
	if ((grew || live > highest || now >= while_ends) &&
	    !atomic_exchange_explicit(&busy, true, memory_order_acquire)) {
		add_moment(live, now, grew);
		atomic_store_explicit(&busy, false, memory_order_release);
		return;
	}
	atomic_store_explicit(&last, live, memory_order_relaxed);
	atomic_store_explicit(&last_ns, now, memory_order_relaxed);
}

void pin_timeline_begin_anew(void)
{
	busy = false;
	n_moments = 0;
	spacing = 0;
	while_ends = 0;
	last_ns = 0;
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
	n = last_ns ? append(out, n, last_ns, last) : n;
	if (taken)
		atomic_store_explicit(&busy, false, memory_order_release);
	return n;
}
