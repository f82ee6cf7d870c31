/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/granule.h"
#include "allocator/log.h"
#include "allocator/resident.h"
#include "allocator/span.h"
#include "allocator/reserve.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

struct granule {
	_Atomic bool is_resident, is_replaced, is_unpinnable;
};

/* Granules looked at in one call. */
#define BATCH	  128
#define N_PAGES	  (PIN_GRANULE / PIN_PAGE)
#define ENOUGH(n) ((n) - (n) / 21)

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

static bool is_in_table(size_t granule)
{
	return granule < atomic_load_explicit(&granules.committed, memory_order_acquire);
}

static struct granule *granule_at(size_t granule)
{
	PIN_ASSERT(is_in_table(granule));
	return pin_table_at(&granules, struct granule, granule);
}

/* Looks at n granules from `first` on. */
static size_t probe_granules(size_t first, size_t n)
{
	uint32_t n_resident[BATCH];
	size_t n_new = 0;

	if (!pin_resident_count(pin_granule_start(first), N_PAGES, n, n_resident))
		return 0;
	for (size_t i = 0; i < n; i++)
		if (n_resident[i] >= ENOUGH(N_PAGES))
			n_new += !atomic_exchange(&granule_at(first + i)->is_resident, true);
	return n_new;
}

size_t pin_granules_probe(struct pin_range range)
{
	size_t i = pin_granule_of(range.start), end = pin_granule_of(range.end - 1) + 1;
	size_t n_new = 0, n;

	for (; i < end; i += n) {
		for (n = 0; i + n < end && n < BATCH && !granule_at(i + n)->is_resident; n++)
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
		granule_at(i)->is_resident = false;
}

/*
 * The kernel reads the mask before it looks at what to do with it, and that is nothing: it
 * knows no such thing. Nothing becomes resident that was not.
 */
bool pin_granules_may_be_read(uintptr_t page)
{
	int error = errno;
	bool may = syscall(SYS_rt_sigprocmask, -1, page, NULL, _NSIG / 8) != -1 ||
		   errno != EFAULT;

	errno = error;
	return may;
}

/* The part of a range that is in a granule. */
static struct pin_range part_of(struct pin_range range, size_t granule)
{
	uintptr_t start = pin_granule_start(granule);

	return pin_range_common(range, (struct pin_range){start, start + PIN_GRANULE});
}

void pin_granules_note_unpinnable(struct pin_range range)
{
	for (size_t i = pin_granule_of(range.start); i <= pin_granule_of(range.end - 1); i++)
		granule_at(i)->is_unpinnable = true;
}

bool pin_granules_any_unpinnable(struct pin_range range)
{
	size_t i = pin_granule_of(range.start), end = pin_granule_of(range.end - 1) + 1;

	while (i < end && !(is_in_table(i) && granule_at(i)->is_unpinnable))
		i++;
	return i < end;
}

/* Of a part of a granule that is not resident as a whole the kernel is asked. */
static bool is_part_resident(struct pin_range range, size_t granule)
{
	struct pin_range part = part_of(range, granule);
	size_t n_pages = pin_range_length(part) / PIN_PAGE;
	uint32_t n_resident;

	return granule_at(granule)->is_resident ||
	       (pin_resident_count(part.start, n_pages, 1, &n_resident) &&
		n_resident >= ENOUGH(n_pages));
}

bool pin_granules_are_resident(struct pin_range range)
{
	size_t first = pin_granule_of(range.start), last = pin_granule_of(range.end - 1);
	size_t i = first;

	while (i <= last && is_in_table(i) && !granule_at(i)->is_replaced &&
	       !granule_at(i)->is_unpinnable &&
	       (granule_at(i)->is_resident ||
		pin_range_length(part_of(range, i)) < PIN_GRANULE))
		i++;
	return i > last && is_part_resident(range, first) && is_part_resident(range, last);
}

void pin_granules_retry_unpinnable(void)
{
	size_t n = atomic_load(&granules.committed);

	for (size_t i = 0; i < n; i++)
		granule_at(i)->is_unpinnable = false;
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
	struct pin_range range = pin_range_granules(pin_range_of((void *)start, length));
	size_t n_bytes = 0;

	for (uint32_t i = 0; i < pin_span_count(); i++) {
		struct pin_range part = pin_range_of_span(pin_span_get(i));

		if (pin_range_meets(part, range))
			n_bytes += mark_replaced(pin_range_common(part, range));
	}
	return n_bytes;
}

bool pin_granules_any_replaced(struct pin_range range)
{
	size_t i = pin_granule_of(range.start), end = pin_granule_of(range.end - 1) + 1;

	while (i < end && !(is_in_table(i) && granule_at(i)->is_replaced))
		i++;
	return i < end;
}
