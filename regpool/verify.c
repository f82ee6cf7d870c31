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
 * A page that is not there can be on its way: the kernel takes a page out before it
 * sees that it is pinned, and puts it back. So it is looked for this often.
 */
#define PATIENCE 10
#define PAUSE_MS 10

struct pin_verified pin_verified;
_Atomic bool pin_verify_on;

/*
 * Guards what follows; held while one granule is read. A domain's lock may be held
 * around it, never taken inside.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * The frame of each page of the heap, by its distance from the reserve's base. 0 is
 * not known: taken over when it is seen, and never compared. A granule without a
 * memory region has nothing but zeros; at the latest when it gets one.
 */
static struct pin_table known;
static uint64_t seen[N_PAGES];

/* What one pass, or one hook, has found. */
struct found {
	size_t moved;
	uintptr_t first; /* address of the first page that moved */
};

static void say_moved(const struct found *found)
{
	if (!found->moved)
		return;
	pin_warn_once(
		"%zu page%s of the heap moved while registered, the first at %p: what is "
		"sent from there may be stale, what is received lost. The program replaces "
		"pages behind malloc, or the adapter's driver does not pin them: until "
		"that is cured set PINALLOC_REGISTER=off",
		found->moved, found->moved == 1 ? "" : "s", (void *)found->first);
}

static const char *why_blind(int error)
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

static void say_blind(int error)
{
	pin_warn_once("page frames are not verified: %s", why_blind(error));
}

static uint64_t *frames_of(size_t granule)
{
	return pin_table_at(&known, uint64_t, granule * N_PAGES);
}

static int make_room(size_t granule)
{
	int error = known.base ? 0
			       : pin_table_init(&known, sizeof(uint64_t),
						pin_reserve.size / PIN_PAGE);

	return error ? error : pin_table_ensure(&known, (granule + 1) * N_PAGES);
}

/* How many of the pages differ, and whether one of those is not there. */
static size_t count_moved(const uint64_t *before, bool *absent)
{
	size_t moved = 0;

	*absent = false;
	for (size_t i = 0; i < N_PAGES; i++) {
		bool differs = before[i] && before[i] != seen[i];

		moved += differs;
		*absent |= differs && !seen[i];
	}
	return moved;
}

/* The frames seen now are those to compare with next time. */
static void take_over(uint64_t *before, uintptr_t addr, struct found *found)
{
	size_t checked = 0, moved = 0;

	for (size_t i = 0; i < N_PAGES; i++) {
		bool differs = before[i] && before[i] != seen[i];

		if (differs && !found->moved && !moved)
			found->first = addr + i * PIN_PAGE;
		checked += before[i] != 0;
		moved += differs;
		before[i] = seen[i];
	}
	found->moved += moved;
	atomic_fetch_add(&pin_verified.checked, checked);
	atomic_fetch_add(&pin_verified.moved, moved);
}

/*
 * Compares a granule that is pinned and stays so, with the lock. Before a difference counts,
 * the kernel gets time to tell that the program is behind it: of munmap() and mremap() it
 * tells after the fact. Pages the program has replaced itself are known to be others.
 */
static int compare(size_t granule, struct found *found)
{
	uintptr_t addr = pin_granule_start(granule);
	int error = make_room(granule);
	bool absent;

	if (!error && !pin_granule_is_replaced(granule))
		error = pin_frames_of(addr, N_PAGES, seen);
	for (int i = 0; !error && !pin_granule_is_replaced(granule) &&
			count_moved(frames_of(granule), &absent) && i < (absent ? PATIENCE : 1);
	     i++) {
		pin_os_sleep_ms(PAUSE_MS);
		pin_watch_settle();
		error = pin_frames_of(addr, N_PAGES, seen);
	}
	if (!error && !pin_granule_is_replaced(granule))
		take_over(frames_of(granule), addr, found);
	return error;
}

/* With the lock. */
static void drop(size_t granule)
{
	if ((granule + 1) * N_PAGES <= atomic_load(&known.committed))
		memset(frames_of(granule), 0, N_PAGES * sizeof(uint64_t));
}

/* If there is a memory region, which pins it until it has got the lock itself. */
static int pass_over(size_t granule, struct found *found)
{
	int error = 0;

	pthread_mutex_lock(&lock);
	if (pin_granule_live(granule))
		error = compare(granule, found);
	pthread_mutex_unlock(&lock);
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

/* Asked of a page that is there for certain. */
static int may_see(void)
{
	uint64_t frame;

	return pin_frames_of((uintptr_t)&frame, 1, &frame);
}

/* Not the lock in a child: it may be held by a thread the child does not have. */
int pin_verify(size_t *moved)
{
	int error = pin_pool_off() == PIN_CHILD ? -ENOTSUP : may_see();
	struct found found = {0};

	if (error)
		return error;
	atomic_store(&pin_verify_on, true);
	for (uint32_t i = 0; i < pin_span_count() && pin_pool.created && !error; i++)
		error = pass_over_span(pin_span_get(i), &found);
	say_moved(&found);
	if (!error && moved)
		*moved = pin_verified.moved;
	return error;
}

static void pass_or_say(void)
{
	int error = pin_verify(NULL);

	if (error)
		say_blind(error);
}

static void *run(void *unused)
{
	for (;;) {
		pin_os_sleep_ms((uint64_t)pin_options.verify * 1000);
		pass_or_say();
	}
	return unused;
}

static void start(void)
{
	int error = pin_thread_start(run, NULL, "pinalloc-verify");

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
		pass_or_say();
}

/* The first memory region there: nobody knows what was before. With the lock. */
static int enter(size_t granule, struct found *found)
{
	if (!pin_granule_enter(granule))
		drop(granule);
	return compare(granule, found);
}

/* With the lock. */
static int leave(size_t granule, struct found *found)
{
	int error = compare(granule, found);

	if (!pin_granule_leave(granule))
		drop(granule);
	return error;
}

/* What a hook sees of a range that is pinned and stays so meanwhile. */
static void look(struct pin_range range, int (*at)(size_t granule, struct found *found))
{
	struct found found = {0};
	int error = 0, first_error = 0;

	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE) {
		pthread_mutex_lock(&lock);
		error = at(pin_granule_of(p), &found);
		pthread_mutex_unlock(&lock);
		first_error = first_error ? first_error : error;
	}
	if (first_error)
		say_blind(first_error);
	say_moved(&found);
}

PIN_COLD void pin_verify_note(struct pin_range range)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	look(range, enter);
	if (pin_options.verify && pin_options.verify != PIN_VERIFY_EXIT)
		pthread_once(&once, start);
}

PIN_COLD void pin_verify_leave(struct pin_range range)
{
	look(range, leave);
}

PIN_COLD void pin_verify_forget(struct pin_range range)
{
	pthread_mutex_lock(&lock);
	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		if (!pin_granule_leave(pin_granule_of(p)))
			drop(pin_granule_of(p));
	pthread_mutex_unlock(&lock);
}
