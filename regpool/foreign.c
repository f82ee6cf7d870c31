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
 * Pages that the program has put over the heap are nobody's: userfaultfd lost them with the
 * mapping that was there.
 */
static void begin_heap(struct pin_foreign *it)
{
	struct pin_pages range = it->range;

	it->descriptors = (uint64_t)1 << PIN_UFFD_HEAP;
	if (pin_granules_any_replaced(
		    pin_range_of((void *)range.start, range.end - range.start)))
		pin_pieces_watch_heap(range);
}

static int has(struct dl_phdr_info *object, size_t size, void *page)
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
 * Data of the program and its libraries are pages of a file, and nobody replaces them. dladdr()
 * would tell, with the lock that dlopen() has while constructors run, which may wait for this
 * thread.
 */
static void say_unwatched(const struct pin_foreign *it)
{
	if (dl_iterate_phdr(has, (void *)it->range.start))
		return;
	pin_warn_once(
		"%s at %p are registered and cannot be watched (pages of a file, System V "
		"shared memory, another userfaultfd's, or too many): if the program replaces "
		"them, what an MPI library sends may be stale",
		PIN_SIZE(it->range.end - it->range.start), (void *)it->range.start);
}

static int renew(struct pin_foreign *it)
{
	int error = pin_books_renew(it->range, &it->descriptors);

	it->had_hole = error == -EFAULT;
	return error;
}

/*
 * Another descriptor has what the program has just moved there until its message is dealt with.
 */
static int renew_when_free(struct pin_foreign *it)
{
	int error = renew(it);

	if (error == -EBUSY) {
		pin_watch_quiet(UINT64_MAX, it->caller);
		error = renew(it);
	}
	return error;
}

static void begin_foreign(struct pin_foreign *it)
{
	int error = pin_books_add(it->range, &it->descriptors);

	it->had_hole = error == -EFAULT;
	if (error == -EBUSY)
		error = renew_when_free(it);
	if (error && !it->had_hole) {
		atomic_fetch_add(&pin_watched.unwatchable, 1);
		if (pin_watch_is_on())
			say_unwatched(it);
		return;
	}
	atomic_fetch_add(&pin_watched.ranges, 1);
}

bool pin_foreign_begin(struct pin_foreign *it, const void *addr, size_t length)
{
	uint32_t before = pin_watch_count();

	if (!length || (uintptr_t)addr + length < (uintptr_t)addr || pin_pool_off() ||
	    !pin_watch_start(NULL))
		return false;
	it->caller = pin_callers_note();
	pin_listeners_find();
	it->range = pin_pages_of(addr, length);
	it->descriptors = 0;
	it->had_hole = false;
	if (pin_reserve_contains(addr))
		begin_heap(it);
	else
		begin_foreign(it);
	it->ticket = pin_watch_quiet(it->descriptors, it->caller);
	/* What was watched and then replaced is not watched, and the ticket is of later. */
	if (pin_watch_count() != before)
		pin_foreign_again(it);
	return true;
}

bool pin_foreign_held(const struct pin_foreign *it)
{
	return !it->had_hole && pin_watch_was_quiet(it->descriptors, it->ticket);
}

/*
 * What has come in the place of what was watched is not, by now. The ticket is taken first:
 * what is replaced from then on makes another try.
 */
void pin_foreign_again(struct pin_foreign *it)
{
	it->ticket = pin_watch_quiet(it->descriptors, it->caller);
	if (pin_reserve_contains((void *)it->range.start)) {
		begin_heap(it);
	} else {
		renew_when_free(it);
	}
}

void pin_foreign_end(struct pin_foreign *it, const struct ibv_mr *mr)
{
	if (!pin_reserve_contains((void *)it->range.start) && pin_watch_is_on())
		pin_books_keep(it->range, mr);
}

bool pin_foreign_take(struct pin_foreign *it, const struct ibv_mr *mr)
{
	return pin_watch_is_on() && pin_books_take(mr, &it->range);
}
