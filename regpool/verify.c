/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/verify.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/region.h"
#include "regpool/domain.h"
#include "regpool/keys.h"
#include "regpool/pool.h"
#include "regpool/thread.h"
#include "regpool/watch.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

/* Pages that are read at a time. */
#define BATCH 4096

/*
 * A page that is not there can be on its way: the kernel takes a page out before it
 * sees that it is pinned, and puts it back. So it is looked for this often.
 */
#define PATIENCE 10
#define PAUSE_MS 10

struct pin_verified pin_verified;
_Atomic bool pin_verify_on;

/*
 * Guards what follows; held while one region is read. A domain's lock may be held
 * around it, never taken inside.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * The frame of each page of the heap, by its distance from the reserve's base. 0 is
 * not known: taken over when it is seen, and never compared. A region that is not
 * registered has nothing but zeros.
 */
static struct pin_table known;
static uint64_t seen[BATCH];

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

/* Pages the program has replaced itself are known to be others. */
static bool is_withdrawn(const struct pin_region *region)
{
	return pin_region_at((void *)region->start) == PIN_REGION_NONE;
}

static bool is_registered(uint32_t number)
{
	uint32_t n = pin_domain_count();

	for (uint32_t i = 0; i < n; i++) {
		for (int kind = 0; kind < PIN_CLASSES; kind++) {
			struct pin_entry *entry = pin_keys_at(&pin_domain_at(i)->classes[kind],
							      number);

			if (entry && atomic_load(&entry->state) & PIN_ENTRY_READY)
				return true;
		}
	}
	return false;
}

/* The number of the region's first page in the table, which may be too short for it. */
static size_t first_page(const struct pin_region *region)
{
	return (region->start - pin_reserve.base) / PIN_PAGE;
}

static size_t page_count(const struct pin_region *region)
{
	return region->length / PIN_PAGE;
}

static int make_room(const struct pin_region *region)
{
	int error = known.base ? 0
			       : pin_table_init(&known, sizeof(uint64_t),
						pin_reserve.size / PIN_PAGE);

	return error ? error
		     : pin_table_ensure(&known, first_page(region) + page_count(region));
}

/* How many of the pages differ, and whether one of those is not there. */
static size_t count_moved(const uint64_t *before, size_t n, bool *absent)
{
	size_t moved = 0;

	*absent = false;
	for (size_t i = 0; i < n; i++) {
		bool differs = before[i] && before[i] != seen[i];

		moved += differs;
		*absent |= differs && !seen[i];
	}
	return moved;
}

/* The frames seen now are those to compare with next time. */
static void take_over(uint64_t *before, size_t n, uintptr_t addr, struct found *found)
{
	size_t checked = 0, moved = 0;

	for (size_t i = 0; i < n; i++) {
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
 * Compares n pages from the region's page `at` on. Before a difference counts, the
 * kernel gets time to tell that the program is behind it: of munmap() and mremap() it
 * tells after the fact.
 */
static int compare(const struct pin_region *region, size_t at, size_t n, struct found *found)
{
	uint64_t *before = pin_table_at(&known, uint64_t, first_page(region) + at);
	uintptr_t addr = region->start + at * PIN_PAGE;
	int error = pin_os_frames(addr, n, seen);
	bool absent;

	for (int i = 0;
	     !error && count_moved(before, n, &absent) && i < (absent ? PATIENCE : 1); i++) {
		pin_os_sleep_ms(PAUSE_MS);
		pin_watch_settle();
		if (is_withdrawn(region))
			return 0;
		error = pin_os_frames(addr, n, seen);
	}
	if (!error)
		take_over(before, n, addr, found);
	return error;
}

/* With the lock; the region is registered and stays so. */
static int inspect(const struct pin_region *region, struct found *found)
{
	size_t n_pages = page_count(region);
	int error = make_room(region);

	for (size_t at = 0; at < n_pages && !error && !is_withdrawn(region); at += BATCH)
		error = compare(region, at, n_pages - at < BATCH ? n_pages - at : BATCH, found);
	return error;
}

/* With the lock: forgets the frames, unless a registration holds the pages. */
static void drop(uint32_t number)
{
	const struct pin_region *region = pin_region_get(number);

	if (!is_registered(number) &&
	    first_page(region) + page_count(region) <= atomic_load(&known.committed))
		memset(pin_table_at(&known, uint64_t, first_page(region)), 0,
		       page_count(region) * sizeof(uint64_t));
}

/* If it is registered. */
static int pass_over(uint32_t number, struct found *found)
{
	const struct pin_region *region = pin_region_get(number);
	int error = 0;

	pthread_mutex_lock(&lock);
	if (region && is_registered(number))
		error = inspect(region, found);
	pthread_mutex_unlock(&lock);
	return error;
}

/* Asked of a page that is there for certain. */
static int may_see(void)
{
	uint64_t frame;

	return pin_os_frames((uintptr_t)&frame, 1, &frame);
}

/* Not the lock in a child: it may be held by a thread the child does not have. */
int pin_verify(size_t *moved)
{
	int error = pin_pool_off() == PIN_CHILD ? -ENOTSUP : may_see();
	struct found found = {0};
	uint32_t n;

	if (error)
		return error;
	atomic_store(&pin_verify_on, true);
	n = pin_pool.created ? pin_region_count() : 0;
	for (uint32_t i = 0; i < n && !error; i++)
		error = pass_over(i, &found);
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
			 "when regions are deregistered, and at exit",
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

/* What a hook sees; the region's entry is BUSY and this thread's. */
static void look(uint32_t number, bool leaving)
{
	struct found found = {0};
	int error;

	pthread_mutex_lock(&lock);
	error = inspect(pin_region_get(number), &found);
	if (leaving)
		drop(number);
	pthread_mutex_unlock(&lock);
	if (error)
		say_blind(error);
	say_moved(&found);
}

PIN_COLD void pin_verify_note(uint32_t number)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	look(number, false);
	if (pin_options.verify && pin_options.verify != PIN_VERIFY_EXIT)
		pthread_once(&once, start);
}

PIN_COLD void pin_verify_leave(uint32_t number)
{
	look(number, true);
}

PIN_COLD void pin_verify_forget(uint32_t number)
{
	pthread_mutex_lock(&lock);
	drop(number);
	pthread_mutex_unlock(&lock);
}
