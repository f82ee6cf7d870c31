/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/granule.h"
#include "allocator/frames.h"
#include "allocator/span.h"
#include "allocator/table.h"

#include <errno.h>
#include <pthread.h>

struct granule {
	_Atomic uint16_t n_regions; /* memory regions that pin it */
	_Atomic uint16_t n_seen;    /* largest number of pages ever seen resident */
	_Atomic bool is_replaced;
};

/* Granules looked at in one call. */
#define BATCH	 128
#define N_PAGES	 (PIN_GRANULE / PIN_PAGE)
#define N_ENOUGH (N_PAGES - N_PAGES / 21)

static struct pin_table granules;

static void init_granules(void)
{
	pin_table_init(&granules, sizeof(struct granule),
		       pin_reserve.size >> PIN_GRANULE_SHIFT);
}

int pin_granules_ensure(uintptr_t end)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, init_granules);
	return pin_table_ensure(&granules, pin_granule_of(end - 1) + 1);
}

static struct granule *granule_at(size_t granule)
{
	return pin_table_at(&granules, struct granule, granule);
}

static bool is_in_table(size_t granule)
{
	return granule < atomic_load_explicit(&granules.committed, memory_order_acquire);
}

size_t pin_granules_pin(struct pin_range range)
{
	size_t n_bytes = 0;

	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		n_bytes += atomic_fetch_add(&granule_at(pin_granule_of(p))->n_regions, 1)
				   ? 0
				   : PIN_GRANULE;
	return n_bytes;
}

size_t pin_granules_unpin(struct pin_range range)
{
	size_t n_bytes = 0;

	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		n_bytes += atomic_fetch_sub(&granule_at(pin_granule_of(p))->n_regions, 1) == 1
				   ? PIN_GRANULE
				   : 0;
	return n_bytes;
}

unsigned pin_granule_n_pins(size_t granule)
{
	return is_in_table(granule) ? granule_at(granule)->n_regions : 0;
}

/*
 * Another thread may have seen more. Returns whether the granule is newly known to be resident.
 */
static bool note_resident(size_t granule, uint32_t n_pages)
{
	uint16_t seen = granule_at(granule)->n_seen;

	while (seen < n_pages && !atomic_compare_exchange_weak(&granule_at(granule)->n_seen,
							       &seen, (uint16_t)n_pages))
		;
	return seen < N_ENOUGH && n_pages >= N_ENOUGH;
}

/* Looks at n granules from `first` on. */
static size_t probe_granules(size_t first, size_t n)
{
	uint32_t n_resident[BATCH];
	size_t n_new = 0;

	if (!pin_frames_count(pin_granule_start(first), N_PAGES, n, n_resident))
		return 0;
	for (size_t i = 0; i < n; i++)
		n_new += note_resident(first + i, n_resident[i]);
	return n_new;
}

size_t pin_granules_probe(struct pin_range range)
{
	size_t i = pin_granule_of(range.start), end = pin_granule_of(range.end - 1) + 1;
	size_t n_new = 0, n;

	for (; i < end; i += n) {
		for (n = 0; i + n < end && n < BATCH && !pin_granule_is_resident(i + n); n++)
			;
		if (n)
			n_new += probe_granules(i, n);
		else
			n = 1;
	}
	return n_new;
}

void pin_granules_look_again(void)
{
	size_t n = atomic_load(&granules.committed);

	for (size_t i = 0; i < n; i++)
		if (!granule_at(i)->n_regions && granule_at(i)->n_seen)
			granule_at(i)->n_seen = 0;
}

size_t pin_granule_missing(size_t granule)
{
	return PIN_GRANULE -
	       (is_in_table(granule) ? granule_at(granule)->n_seen * PIN_PAGE : 0);
}

bool pin_granule_is_resident(size_t granule)
{
	return pin_granule_missing(granule) <= (N_PAGES - N_ENOUGH) * PIN_PAGE;
}

/* For a range within one span. */
static size_t mark_replaced(struct pin_range range)
{
	size_t n_bytes = 0;

	if (pin_granules_ensure(range.end))
		return 0;
	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		n_bytes += atomic_exchange(&granule_at(pin_granule_of(p))->is_replaced, true)
				   ? 0
				   : PIN_GRANULE;
	return n_bytes;
}

size_t pin_granules_mark_replaced(uintptr_t start, size_t length)
{
	struct pin_range range = pin_range_of((void *)start, length);
	size_t n_bytes = 0;

	for (uint32_t i = 0; i < pin_span_count(); i++) {
		struct pin_range part = pin_range_of_span(pin_span_get(i));

		if (!pin_range_meets(part, range))
			continue;
		if (part.start < range.start)
			part.start = range.start;
		if (part.end > range.end)
			part.end = range.end;
		n_bytes += mark_replaced(part);
	}
	return n_bytes;
}

bool pin_granule_is_replaced(size_t granule)
{
	return is_in_table(granule) && granule_at(granule)->is_replaced;
}

bool pin_granules_any_replaced(struct pin_range range)
{
	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		if (pin_granule_is_replaced(pin_granule_of(p)))
			return true;
	return false;
}
