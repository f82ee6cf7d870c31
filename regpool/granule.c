/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/granule.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "allocator/resident.h"

#include <errno.h>
#include <string.h>

/* Granules looked at in one call. */
#define BATCH	  128
#define N_PAGES	  (PIN_GRANULE / PIN_PAGE)
#define ENOUGH(n) ((n) - (n) / 21)

/* Flags of each, and page → memory regions that have it, of all sets. */
static struct pin_table granules = PIN_TABLE(uint32_t, SIZE_MAX, PIN_GRANULE);
static struct pin_table pins = PIN_TABLE(uint32_t, SIZE_MAX, PIN_PAGE);

int pin_granules_ensure(uintptr_t end)
{
	return pin_table_ensure(&pins, (end - pin_reserve.base) / PIN_PAGE)
		       ?: pin_table_ensure(&granules, pin_granule_of(end - 1) + 1);
}

static _Atomic uint32_t *flags_at(size_t granule)
{
	PIN_ASSERT(granule < granules.committed);
	return pin_table_at(&granules, _Atomic uint32_t, granule);
}

static bool has(size_t granule, uint32_t flags)
{
	return granule < atomic_load_explicit(&granules.committed, memory_order_acquire) &&
	       *flags_at(granule) & flags;
}

/* The part of a range that is in a granule. */
static struct pin_range part_of(struct pin_range range, size_t granule)
{
	uintptr_t start = pin_granule_start(granule);

	return pin_range_common(range, (struct pin_range){start, start + PIN_GRANULE});
}

/* Of a part of a granule that is not resident as a whole the kernel is asked. */
static bool is_part_resident(struct pin_range range, size_t granule)
{
	struct pin_range part = part_of(range, granule);
	size_t n_pages = pin_range_length(part) / PIN_PAGE;
	uint32_t n_resident;

	return has(granule, PIN_IS_RESIDENT) ||
	       (pin_resident_count(part.start, n_pages, 1, &n_resident) &&
		n_resident >= ENOUGH(n_pages));
}

/*
 * Looks at n granules from `first` on. Of memory that nobody has touched mincore(2) tells
 * much sooner than the pagemap, in which only those that may be resident are looked up.
 */
static size_t probe_granules(size_t first, size_t n)
{
	static unsigned char is_there[BATCH * N_PAGES];
	size_t n_new = 0;

	if (pin_os_resident((void *)pin_granule_start(first), n * N_PAGES, is_there))
		memset(is_there, 1, sizeof is_there);
	for (size_t i = 0; i < n; i++) {
		size_t n_pages = 0;
		uint32_t seen = 0;

		for (size_t k = 0; k < N_PAGES; k++)
			n_pages += is_there[i * N_PAGES + k] & 1;
		if (n_pages)
			seen = PIN_IS_TOUCHED;
		if (n_pages >= ENOUGH(N_PAGES) &&
		    is_part_resident((struct pin_range){0, UINTPTR_MAX}, first + i))
			seen |= PIN_IS_RESIDENT;
		n_new += seen / PIN_IS_RESIDENT;
		atomic_fetch_or(flags_at(first + i), seen);
	}
	return n_new;
}

size_t pin_granules_probe(struct pin_range range)
{
	size_t i = pin_granule_of(range.start), end = pin_granule_of(range.end - 1) + 1;
	size_t n_new = 0, n;

	for (; i < end; i += n ? n : 1) {
		for (n = 0; i + n < end && n < BATCH && !has(i + n, PIN_IS_RESIDENT); n++)
			;
		if (n)
			n_new += probe_granules(i, n);
	}
	return n_new;
}

bool pin_granules_any(struct pin_range range, uint32_t flags)
{
	size_t i = pin_granule_of(range.start), end = pin_granule_of(range.end - 1) + 1;

	while (i < end && !has(i, flags))
		i++;
	return i < end;
}

void pin_granules_forget(uint32_t flags)
{
	size_t n = atomic_load(&granules.committed);

	for (size_t i = 0; i < n; i++)
		atomic_fetch_and(flags_at(i), ~flags);
}

void pin_granules_note_unpinnable(struct pin_range range)
{
	for (size_t i = pin_granule_of(range.start); i <= pin_granule_of(range.end - 1); i++)
		atomic_fetch_or(flags_at(i), PIN_IS_UNPINNABLE);
}

bool pin_granules_are_resident(struct pin_range range)
{
	size_t first = pin_granule_of(range.start), last = pin_granule_of(range.end - 1);
	size_t i = first;

	while (i <= last && !has(i, PIN_IS_REPLACED | PIN_IS_UNPINNABLE) &&
	       (has(i, PIN_IS_RESIDENT) || pin_range_length(part_of(range, i)) < PIN_GRANULE))
		i++;
	return i > last && is_part_resident(range, first) && is_part_resident(range, last);
}

size_t pin_granules_count_pins(struct pin_range range, int n)
{
	size_t page = (range.start - pin_reserve.base) / PIN_PAGE, n_bytes = 0;

	for (uintptr_t p = range.start; p < range.end; p += PIN_PAGE, page++) {
		uint32_t before = atomic_fetch_add(pin_table_at(&pins, _Atomic uint32_t, page),
						   (uint32_t)n);

		n_bytes += before && before + (uint32_t)n ? 0 : PIN_PAGE;
	}
	return n_bytes;
}

size_t pin_granules_mark_replaced(uintptr_t start, size_t length)
{
	struct pin_range range = pin_range_granules(pin_range_of((void *)start, length));
	size_t n_bytes = 0;

	for (uint32_t i = 0; i < pin_span_count(); i++) {
		struct pin_range part = pin_range_of_span(pin_span_get(i));

		if (!pin_range_meets(part, range) || pin_granules_ensure(part.end))
			continue;
		part = pin_range_common(part, range);
		for (size_t k = pin_granule_of(part.start); k < pin_granule_of(part.end); k++)
			if (!(atomic_fetch_or(flags_at(k), PIN_IS_REPLACED) & PIN_IS_REPLACED))
				n_bytes += PIN_GRANULE;
	}
	return n_bytes;
}
