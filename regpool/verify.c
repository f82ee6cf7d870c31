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
/* Whether page frames are recorded. Never goes back to false. */
static _Atomic bool is_on;

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
	if (error)
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

static void forget_frames(size_t granule)
{
	if ((granule + 1) * N_PAGES <= atomic_load(&known_frames.committed))
		memset(frames_of(granule), 0, N_PAGES * sizeof(uint64_t));
}

/* What differs from what is known, whether any of that is not mapped, and what was known. */
struct difference {
	size_t moved, checked, first;
	bool absent;
};

static struct difference compare_frames(const uint64_t *known)
{
	struct difference found = {0};

	for (size_t i = N_PAGES; i--;) {
		bool differs = known[i] && known[i] != current_frames[i];

		found.checked += known[i] != 0;
		found.moved += differs;
		found.first = differs ? i : found.first;
		found.absent |= differs && !current_frames[i];
	}
	return found;
}

/*
 * Compares a granule that is and stays pinned. The kernel reports munmap() and mremap() after
 * the fact, so before a difference counts, it gets time to report that the program itself
 * replaced the pages; those are known to differ.
 */
static int compare_granule(size_t granule, struct found *found)
{
	uintptr_t addr = pin_granule_start(granule);
	int error = commit_frames(granule), tries = 0;
	struct difference now = {0};

	while (!error && !pin_granule_is_replaced(granule)) {
		error = pin_frames_of(addr, N_PAGES, current_frames);
		now = compare_frames(frames_of(granule));
		if (error || !now.moved || tries++ >= (now.absent ? PATIENCE : 1))
			break;
		pin_os_sleep_ms(PAUSE_MS);
		pin_watch_catch_up();
	}
	if (error || pin_granule_is_replaced(granule))
		return error;
	memcpy(frames_of(granule), current_frames, N_PAGES * sizeof(uint64_t));
	if (!found->moved)
		found->first = addr + now.first * PIN_PAGE;
	found->moved += now.moved;
	atomic_fetch_add(&pin_verified.checked, now.checked);
	atomic_fetch_add(&pin_verified.moved, now.moved);
	return 0;
}

/*
 * A pass compares granules that have a memory region, whose deregistration needs the lock, so
 * that they stay pinned. The others count memory regions: what is known from before the first
 * of a granule is not compared, and is forgotten with the last.
 */
enum step { PASS, ENTER, LEAVE, GONE };

static int visit_granule(size_t granule, enum step step, struct found *found)
{
	int error = 0;

	if (step == ENTER && !pin_granule_enter(granule))
		forget_frames(granule);
	if (step != GONE && (step != PASS || pin_granule_n_live(granule)))
		error = compare_granule(granule, found);
	if ((step == LEAVE || step == GONE) && !pin_granule_leave(granule))
		forget_frames(granule);
	return error;
}

/* Returns the first error. A pass ends there. */
static int visit(struct pin_range range, enum step step, struct found *found)
{
	int first_error = 0, error;

	for (uintptr_t p = range.start; p < range.end && !(first_error && step == PASS);
	     p += PIN_GRANULE) {
		pthread_mutex_lock(&verify_lock);
		error = visit_granule(pin_granule_of(p), step, found);
		pthread_mutex_unlock(&verify_lock);
		first_error = first_error ? first_error : error;
	}
	return first_error;
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
	atomic_store(&is_on, true);
	for (uint32_t i = 0; i < pin_span_count() && pin_pool.created && !error; i++)
		error = visit(pin_range_of_span(pin_span_get(i)), PASS, &found);
	warn_moved(&found);
	if (!error && moved)
		*moved = pin_verified.moved;
	return error;
}

static void *run_verifier(void *unused)
{
	for (;;) {
		pin_os_sleep_ms((uint64_t)pin_options.verify * 1000);
		warn_unverifiable(pin_verify(NULL));
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
		atomic_store(&is_on, true);
}

void pin_verify_at_exit(void)
{
	if (pin_options.verify && pin_pool.created && pin_pool_off() != PIN_CHILD)
		warn_unverifiable(pin_verify(NULL));
}

/* When verification is off, which is the rule, there is nothing to lock. */
static void count(struct pin_range range, enum step step)
{
	struct found found = {0};

	if (PIN_UNLIKELY(atomic_load(&is_on))) {
		warn_unverifiable(visit(range, step, &found));
		warn_moved(&found);
		return;
	}
	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		(step == ENTER ? pin_granule_enter : pin_granule_leave)(pin_granule_of(p));
}

void pin_verify_registered(struct pin_range range)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	count(range, ENTER);
	if (PIN_UNLIKELY(pin_options.verify && pin_options.verify != PIN_VERIFY_EXIT))
		pthread_once(&once, start_verifier);
}

void pin_verify_deregister(struct pin_range range)
{
	count(range, LEAVE);
}

void pin_verify_gone(struct pin_range range)
{
	count(range, GONE);
}
