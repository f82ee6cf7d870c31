/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/verify.h"
#include "allocator/frames.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "allocator/table.h"
#include "regpool/granule.h"
#include "regpool/pool.h"
#include "regpool/thread.h"
#include "regpool/watch.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define N_PAGES (PIN_GRANULE / PIN_PAGE)

/*
 * The kernel unmaps a page before it notices that it is pinned, and then maps it again. So a
 * page that is missing is looked for this often before it counts as moved.
 */
#define PATIENCE 10
#define PAUSE_MS 10

struct pin_verified pin_verified;
_Atomic bool pin_verify_on;

/*
 * Guards what follows; held while one granule is read. May be taken under a domain's lock, not
 * the other way round.
 */
static pthread_mutex_t verify_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * The page frame of each heap page, indexed by its distance from the base of the reservation. 0
 * means unknown: it is not compared, but set when next seen. The frames of a granule are
 * zeroed, at the latest, when it gets its first memory region.
 */
static struct pin_table known_frames;
static uint64_t current_frames[PIN_GRANULE / PIN_PAGE_LEAST];

/* Result of one pass or hook. */
struct found {
	size_t moved;
	uintptr_t first; /* address of the first page that moved */
};

static void warn_moved(const struct found *found)
{
	if (!found->moved)
		return;
	pin_warn_once("%zu page%s of the heap moved while registered, the first at %p: data "
		      "sent from there may be stale, data received there lost. Either the "
		      "program replaces pages behind malloc, or the adapter's driver does not "
		      "pin them: until that is mended set PINALLOC_REGISTER=off",
		      found->moved, found->moved == 1 ? "" : "s", (void *)found->first);
}

static const char *why_unverifiable(int error)
{
	switch (error) {
	case -EPERM:
		return "the kernel hides them; run as root, with CAP_SYS_ADMIN and outside of "
		       "user namespaces";
	case -ENOTSUP:
		return "there is no /proc/self/pagemap; mount /proc, of a kernel with "
		       "CONFIG_PROC_PAGE_MONITOR";
	case -ENOMEM:
		return "no memory for 8 bytes a page of heap; raise ulimit -v, or the limit on "
		       "committed memory";
	default:
		return strerrordesc_np(-error);
	}
}

static void warn_unverifiable(int error)
{
	pin_warn_once("page frames are not verified: %s", why_unverifiable(error));
}

static uint64_t *frames_of(size_t granule)
{
	return pin_table_at(&known_frames, uint64_t, granule * N_PAGES);
}

static int commit_frames(size_t granule)
{
	int error = known_frames.base ? 0
				      : pin_table_init(&known_frames, sizeof(uint64_t),
						       pin_reserve.size / PIN_PAGE);

	return error ? error : pin_table_ensure(&known_frames, (granule + 1) * N_PAGES);
}

/* The number of pages that differ. Sets *absent if any of those is not mapped. */
static size_t count_moved(const uint64_t *before, bool *absent)
{
	size_t moved = 0;

	*absent = false;
	for (size_t i = 0; i < N_PAGES; i++) {
		bool differs = before[i] && before[i] != current_frames[i];

		moved += differs;
		*absent |= differs && !current_frames[i];
	}
	return moved;
}

/* Counts the differences, and stores the current frames for the next comparison. */
static void compare_and_store(uint64_t *before, uintptr_t addr, struct found *found)
{
	size_t checked = 0, moved = 0;

	for (size_t i = 0; i < N_PAGES; i++) {
		bool differs = before[i] && before[i] != current_frames[i];

		if (differs && !found->moved && !moved)
			found->first = addr + i * PIN_PAGE;
		checked += before[i] != 0;
		moved += differs;
		before[i] = current_frames[i];
	}
	found->moved += moved;
	atomic_fetch_add(&pin_verified.checked, checked);
	atomic_fetch_add(&pin_verified.moved, moved);
}

/*
 * Compares a granule that is and stays pinned. Caller holds verify_lock. The kernel reports
 * munmap() and mremap() after the fact, so before a difference counts, it gets time to report
 * that the program itself replaced the pages; those are known to differ.
 */
static int compare_granule(size_t granule, struct found *found)
{
	uintptr_t addr = pin_granule_start(granule);
	int error = commit_frames(granule);
	bool absent;

	if (!error && !pin_granule_is_replaced(granule))
		error = pin_frames_of(addr, N_PAGES, current_frames);
	for (int i = 0; !error && !pin_granule_is_replaced(granule) &&
			count_moved(frames_of(granule), &absent) && i < (absent ? PATIENCE : 1);
	     i++) {
		pin_os_sleep_ms(PAUSE_MS);
		pin_watch_catch_up();
		error = pin_frames_of(addr, N_PAGES, current_frames);
	}
	if (!error && !pin_granule_is_replaced(granule))
		compare_and_store(frames_of(granule), addr, found);
	return error;
}

/* Caller holds verify_lock. */
static void forget_frames(size_t granule)
{
	if ((granule + 1) * N_PAGES <= atomic_load(&known_frames.committed))
		memset(frames_of(granule), 0, N_PAGES * sizeof(uint64_t));
}

/*
 * Compares a granule if it has a memory region, whose deregistration needs the same lock, so
 * that it stays pinned.
 */
static int pass_over(size_t granule, struct found *found)
{
	int error = 0;

	pthread_mutex_lock(&verify_lock);
	if (pin_granule_n_live(granule))
		error = compare_granule(granule, found);
	pthread_mutex_unlock(&verify_lock);
	return error;
}

static int pass_over_span(const struct pin_span *span, struct found *found)
{
	struct pin_range range = pin_range_of_span(span);
	int error = 0;

	for (uintptr_t p = range.start; p < range.end && !error; p += PIN_GRANULE)
		error = pass_over(pin_granule_of(p), found);
	return error;
}

/* Tries a page that certainly is mapped. */
static int can_read_frames(void)
{
	uint64_t frame;

	return pin_frames_of((uintptr_t)&frame, 1, &frame);
}

/* Must not take the lock in a child: a thread that the child does not have may hold it. */
int pin_verify(size_t *moved)
{
	int error = pin_pool_off() == PIN_CHILD ? -ENOTSUP : can_read_frames();
	struct found found = {0};

	if (error)
		return error;
	atomic_store(&pin_verify_on, true);
	for (uint32_t i = 0; i < pin_span_count() && pin_pool.created && !error; i++)
		error = pass_over_span(pin_span_get(i), &found);
	warn_moved(&found);
	if (!error && moved)
		*moved = pin_verified.moved;
	return error;
}

static void pass_or_warn(void)
{
	int error = pin_verify(NULL);

	if (error)
		warn_unverifiable(error);
}

static void *run_verifier(void *unused)
{
	for (;;) {
		pin_os_sleep_ms((uint64_t)pin_options.verify * 1000);
		pass_or_warn();
	}
	return unused;
}

static void start_verifier(void)
{
	int error = pin_thread_start(run_verifier, NULL, "pinalloc-verify");

	if (error)
		pin_warn("cannot start the verification thread: %s; page frames are compared "
			 "when memory regions are deregistered, and at exit",
			 strerrordesc_np(error));
}

void pin_verify_init(void)
{
	if (pin_options.verify)
		atomic_store(&pin_verify_on, true);
}

void pin_verify_at_exit(void)
{
	if (pin_options.verify && pin_pool.created && pin_pool_off() != PIN_CHILD)
		pass_or_warn();
}

/*
 * Caller holds verify_lock. What is known from before the first memory region is not compared.
 */
static int enter_granule(size_t granule, struct found *found)
{
	if (!pin_granule_enter(granule))
		forget_frames(granule);
	return compare_granule(granule, found);
}

/* Caller holds verify_lock. */
static int leave_granule(size_t granule, struct found *found)
{
	int error = compare_granule(granule, found);

	if (!pin_granule_leave(granule))
		forget_frames(granule);
	return error;
}

/* Calls a hook for each granule of a range that is and stays pinned. */
static void for_each_granule(struct pin_range range,
			     int (*at)(size_t granule, struct found *found))
{
	struct found found = {0};
	int error = 0, first_error = 0;

	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE) {
		pthread_mutex_lock(&verify_lock);
		error = at(pin_granule_of(p), &found);
		pthread_mutex_unlock(&verify_lock);
		first_error = first_error ? first_error : error;
	}
	if (first_error)
		warn_unverifiable(first_error);
	warn_moved(&found);
}

PIN_COLD void pin_verify_note(struct pin_range range)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	for_each_granule(range, enter_granule);
	if (pin_options.verify && pin_options.verify != PIN_VERIFY_EXIT)
		pthread_once(&once, start_verifier);
}

PIN_COLD void pin_verify_leave(struct pin_range range)
{
	for_each_granule(range, leave_granule);
}

PIN_COLD void pin_verify_forget(struct pin_range range)
{
	pthread_mutex_lock(&verify_lock);
	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		if (!pin_granule_leave(pin_granule_of(p)))
			forget_frames(pin_granule_of(p));
	pthread_mutex_unlock(&verify_lock);
}
