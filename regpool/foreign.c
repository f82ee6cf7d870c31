/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/foreign.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "regpool/listeners.h"
#include "regpool/pool.h"
#include "regpool/watch.h"

#include <errno.h>
#include <link.h>
#include <unistd.h>

/* Where the main thread's stack began (glibc). */
extern void *__libc_stack_end;

/* Nothing else is mapped so far below it (mmap_base() in arch/x86/mm/mmap.c). */
#define STACK_GAP (128 * PIN_MIB)

static struct pin_pages pages_of(const struct dl_phdr_info *object)
{
	uintptr_t start = UINTPTR_MAX, end = 0;

	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];
		uintptr_t from = object->dlpi_addr + part->p_vaddr;

		if (part->p_type != PT_LOAD)
			continue;
		start = from < start ? from : start;
		end = from + part->p_memsz > end ? from + part->p_memsz : end;
	}
	return (struct pin_pages){PIN_ALIGN_DOWN(start, PIN_PAGE), PIN_ALIGN_UP(end, PIN_PAGE)};
}

static bool has(struct pin_pages all, struct pin_pages range)
{
	return range.start >= all.start && range.end <= all.end;
}

static int holds_range(struct dl_phdr_info *object, size_t size, void *range)
{
	(void)size;
	return has(pages_of(object), *(const struct pin_pages *)range);
}

/*
 * The objects that the program was linked with, which are never unloaded. Those that are too
 * many count as unloadable.
 */
PIN_WRITTEN_FIRST static struct pin_pages linked[256];
PIN_WRITTEN_FIRST static size_t n_linked;

static int add_linked(struct dl_phdr_info *object, size_t size, void *unused)
{
	(void)size;
	(void)unused;
	linked[n_linked++] = pages_of(object);
	return n_linked == PIN_ARRAY_SIZE(linked);
}

__attribute__((constructor)) static void find_linked(void)
{
	dl_iterate_phdr(add_linked, NULL);
}

static bool is_linked(struct pin_pages range)
{
	for (size_t i = 0; i < n_linked; i++)
		if (has(linked[i], range))
			return true;
	return false;
}

/*
 * With ulimit -s unlimited it may be larger than the gap below it. But the first thread may run
 * on another stack, below all kinds of memory: one that the program has made (makecontext(3)),
 * or in a child that another thread has forked. Then there is a hole below the main thread's.
 */
static bool is_main_stack(struct pin_pages range)
{
	uintptr_t end = PIN_ALIGN_UP((uintptr_t)__libc_stack_end, PIN_PAGE);
	uintptr_t here = PIN_ALIGN_DOWN((uintptr_t)__builtin_frame_address(0), PIN_PAGE);
	uintptr_t start = end - STACK_GAP;

	if (range.start >= here && here < start && getpid() == gettid() &&
	    pin_os_is_mapped((void *)here, start - here))
		start = here;
	return range.start >= start && range.end <= end;
}

static bool never_goes(struct pin_pages range)
{
	return is_main_stack(range) || is_linked(range);
}

/*
 * The data segments of libraries that were loaded later are file mappings, which nobody
 * replaces before they go.
 */
static void note_unwatchable(struct pin_pages range)
{
	atomic_fetch_add(&pin_watched.unwatchable, 1);
	if (pin_watch_is_on() && !dl_iterate_phdr(holds_range, &range))
		pin_warn_once("%s at %p are registered and cannot be watched (pages of a file, "
			      "or System V shared memory): if the program replaces them, an "
			      "MPI library may send stale data; PINALLOC_WATCH=strict "
			      "prevents that",
			      PIN_SIZE(range.end - range.start), (void *)range.start);
}

/* By Open MPI's own cache, which may hold a lock until then. */
static bool is_inserted_later(const void *caller)
{
	return !pin_listeners_forget_first(caller);
}

/* What cannot be watched now, but may be another time, is forgotten. */
static void watch(struct pin_foreign *it)
{
	int error = pin_watch_pages(it->range, is_inserted_later(it->caller), &it->ticket);

	it->how = PIN_WATCHED;
	if (!error)
		return;
	it->how = PIN_FORGOTTEN;
	if (error != -EINVAL && error != -EPERM && error != -ENOSYS)
		return;
	it->how = PIN_LEFT_ALONE;
	note_unwatchable(it->range);
}

static bool is_strict(void)
{
	return pin_options.watch == PIN_WATCH_STRICT;
}

/* The program may map memory of its own where the heap has not come to yet. */
static bool is_heap(struct pin_pages range)
{
	for (uint32_t i = 0; i < pin_span_count(); i++) {
		struct pin_range span = pin_range_of_span(pin_span_get(i));

		if (pin_pages_meet(range, (struct pin_pages){span.start, span.end}))
			return true;
	}
	return false;
}

/* The heap is watched in any case, but for what the program has mapped over it. */
static void begin_heap(struct pin_foreign *it, const void *addr, size_t length)
{
	bool is_watched = pin_watch_is_on() && pin_span_find(addr, length) &&
			  !pin_granules_any_replaced(pin_range_of(addr, length));

	if (is_watched && !pin_ranges_get_ticket(PIN_UFFD_HEAP, &it->ticket))
		it->how = PIN_WATCHED;
	else if (pin_watch_is_on() || is_strict())
		it->how = PIN_FORGOTTEN;
}

static bool is_due(const struct pin_foreign *it)
{
	return pin_ranges_has(it->range) || is_inserted_later(it->caller) ||
	       pin_ranges_is_due(it->range);
}

void pin_foreign_begin(struct pin_foreign *it, const void *addr, size_t length,
		       const void *caller)
{
	*it = (struct pin_foreign){.how = PIN_LEFT_ALONE, .caller = caller};
	if (!length || (uintptr_t)addr + length < (uintptr_t)addr || !pin_listeners_find())
		return;
	it->range = pin_pages_of(addr, length);
	if (pin_reserve_contains(addr) && is_heap(it->range)) {
		begin_heap(it, addr, length);
		return;
	}
	if (never_goes(it->range))
		return;
	if (is_strict() || !is_due(it))
		it->how = PIN_FORGOTTEN;
	else
		watch(it);
}

static void forget(struct pin_pages range)
{
	atomic_fetch_add(&pin_watched.forgotten, 1);
	pin_listeners_forget(range.start, range.end - range.start);
}

static void notify_later(unsigned n)
{
	if (pin_watch_is_on())
		pin_watch_notify_again(n);
}

void pin_foreign_end(struct pin_foreign *it)
{
	bool is_kept = it->how == PIN_WATCHED && pin_ranges_are_unchanged(&it->ticket);
	int error = errno;

	pin_listeners_note_registered(it->range, is_kept ? &it->ticket : NULL);
	if (is_kept && it->ticket.n)
		atomic_fetch_add(&pin_watched.ranges, 1);
	else if (!is_kept && it->how != PIN_LEFT_ALONE)
		forget(it->range);
	/* It may have gone from the ranges, whose caches are notified. */
	if (!is_kept && it->ticket.n && is_inserted_later(it->caller)) {
		pin_watch_pages(it->range, true, &it->ticket);
		notify_later(it->ticket.n);
	}
	errno = error;
}

void pin_foreign_forget_heap(const void *addr, size_t length, const void *caller)
{
	if (!pin_listeners_find())
		return;
	forget(pin_pages_of(addr, length));
	if (is_inserted_later(caller))
		notify_later(PIN_UFFD_HEAP);
}
