/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/foreign.h"
#include "allocator/log.h"
#include "allocator/reserve.h"
#include "regpool/books.h"
#include "regpool/callers.h"
#include "regpool/granule.h"
#include "regpool/listeners.h"
#include "regpool/pool.h"
#include "regpool/uffd.h"
#include "regpool/watch.h"

#include <errno.h>
#include <link.h>

/*
 * Pages the program has mapped over the heap are not watched: userfaultfd lost them together
 * with the previous mapping.
 */
static void watch_heap_pages(struct pin_foreign *it)
{
	struct pin_pages range = it->range;

	it->descriptors = (uint64_t)1 << PIN_UFFD_HEAP;
	if (pin_granules_any_replaced(
		    pin_range_of((void *)range.start, range.end - range.start)))
		pin_pieces_watch_heap(range);
}

static int contains_page(struct dl_phdr_info *object, size_t size, void *page)
{
	(void)size;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		uintptr_t start = object->dlpi_addr + part->p_vaddr;

		if (part->p_type == PT_LOAD && (uintptr_t)page < start + part->p_memsz &&
		    (uintptr_t)page >= PIN_ALIGN_DOWN(start, PIN_PAGE))
			return 1;
	}
	return 0;
}

/*
 * The data segments of the program and its libraries are file mappings, which nobody replaces.
 * dladdr() would tell, but takes a lock that dlopen() holds while constructors run, and they
 * may be waiting for this thread.
 */
static void warn_unwatched_range(const struct pin_foreign *it)
{
	if (dl_iterate_phdr(contains_page, (void *)it->range.start))
		return;
	pin_warn_once(
		"%s at %p are registered and cannot be watched (pages of a file, System V "
		"shared memory, another userfaultfd's, or too many): if the program replaces "
		"them, an MPI library may send stale data",
		PIN_SIZE(it->range.end - it->range.start), (void *)it->range.start);
}

static int renew_range(struct pin_foreign *it)
{
	int error = pin_books_renew(it->range, &it->descriptors);

	it->had_hole = error == -EFAULT;
	return error;
}

/*
 * -EBUSY: the program has just moved watched memory there, and its old descriptor watches it
 * until the message is processed.
 */
static int renew_range_when_free(struct pin_foreign *it)
{
	int error = renew_range(it);

	if (error == -EBUSY) {
		pin_watch_await_quiet(UINT64_MAX, it->caller);
		error = renew_range(it);
	}
	return error;
}

static void watch_foreign_pages(struct pin_foreign *it)
{
	int error = pin_books_add(it->range, &it->descriptors);

	it->had_hole = error == -EFAULT;
	if (error == -EBUSY)
		error = renew_range_when_free(it);
	if (error && !it->had_hole) {
		atomic_fetch_add(&pin_watched.unwatchable, 1);
		if (pin_watch_is_on())
			warn_unwatched_range(it);
		return;
	}
	atomic_fetch_add(&pin_watched.ranges, 1);
}

bool pin_foreign_begin(struct pin_foreign *it, const void *addr, size_t length)
{
	uint32_t before = pin_watch_generation();

	if (!length || (uintptr_t)addr + length < (uintptr_t)addr || pin_pool_off() ||
	    !pin_watch_start(NULL))
		return false;
	it->caller = pin_callers_note();
	pin_listeners_find();
	it->range = pin_pages_of(addr, length);
	it->descriptors = 0;
	it->had_hole = false;
	if (pin_reserve_contains(addr))
		watch_heap_pages(it);
	else
		watch_foreign_pages(it);
	it->ticket = pin_watch_await_quiet(it->descriptors, it->caller);
	/*
	 * Watched pages that were replaced meanwhile are not watched any more, and the ticket
	 * is newer than that.
	 */
	if (pin_watch_generation() != before)
		pin_foreign_retry(it);
	return true;
}

bool pin_foreign_is_intact(const struct pin_foreign *it)
{
	return !it->had_hole && pin_watch_stayed_quiet(it->descriptors, it->ticket);
}

/*
 * Pages that replaced watched ones are not watched. The ticket is taken first: if more are
 * replaced from then on, there is another attempt.
 */
void pin_foreign_retry(struct pin_foreign *it)
{
	it->ticket = pin_watch_await_quiet(it->descriptors, it->caller);
	if (pin_reserve_contains((void *)it->range.start)) {
		watch_heap_pages(it);
	} else {
		renew_range_when_free(it);
	}
}

void pin_foreign_end(struct pin_foreign *it, const struct ibv_mr *mr)
{
	if (!pin_reserve_contains((void *)it->range.start) && pin_watch_is_on())
		pin_books_keep(it->range, mr);
}

bool pin_foreign_begin_dereg(struct pin_foreign *it, const struct ibv_mr *mr)
{
	return pin_watch_is_on() && pin_books_remove(mr, &it->range);
}
