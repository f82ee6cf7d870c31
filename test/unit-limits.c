/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Exhausted resources: locked memory, the adapter's memory regions, and any other reason for
 * which a call can fail. Idle memory regions are evicted, those in use stay, and no request
 * fails that would have succeeded without the library.
 */
#include <config.h>

#include "regpool/budget.h"
#include "regpool/choice.h"
#include "regpool/evict.h"
#include "regpool/keys.h"
#include "regpool/proxy.h"
#include "regpool/state.h"
#include "test/beside.h"
#include "test/fake-kernel.h"
#include "test/lines.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define PIECES	16
#define THREADS 8

static char *heap[PIECES];

#define ends_without_limits(pd)                                    \
	do {                                                       \
		fake_kernel.memlock = fake_verbs.limit = SIZE_MAX; \
		fake_verbs.max_mr_size = SIZE_MAX;                 \
		pin_options.max_pinned = SIZE_MAX;                 \
		fake_verbs.max_mr = INT_MAX;                       \
		fake_verbs.full_errno = ENOMEM;                    \
		nothing_is_left(pd);                               \
	} while (0)

/* In a process of its own: it is not found out again at once. */
static size_t share_with(size_t ram, size_t cgroup)
{
	int status = 0;
	pid_t child = fork();

	if (!child) {
		fake_kernel.ram = ram;
		fake_kernel.cgroup = cgroup;
		pin_options.max_pinned = PIN_PINNED_AUTO;
		_exit((int)(pin_budget_pinned_limit() / PIECE));
	}
	waitpid(child, &status, 0);
	return (size_t)WEXITSTATUS(status) * PIECE;
}

/* How many of the pieces, one by one and all in use, are served; the others are passed. */
static unsigned served_at_once(struct ibv_pd *pd)
{
	uint64_t before = pin_state_requests(PIN_SERVED);
	struct ibv_mr *held[PIECES];
	unsigned n;

	for (int i = 0; i < PIECES; i++)
		held[i] = reg(pd, heap[i], PIECE, RIGHTS);
	n = (unsigned)(pin_state_requests(PIN_SERVED) - before);
	for (int i = 0; i < PIECES; i++)
		if (!held[i] || !reaches(held[i]) || pin_mr_deregister(held[i]))
			n = 0;
	return n;
}

static void share_of_memory(void)
{
	struct ibv_pd *pd = new_pd();
	struct lines lines;
	unsigned n;

	ok(share_with(80 * PIECE, SIZE_MAX) == 60 * PIECE,
	   "the limit is 3/4 of the machine's memory");
	ok(share_with(80 * PIECE, 40 * PIECE) == 30 * PIECE, "or 3/4 of the cgroup's limit");
	setenv("SLURM_TASKS_PER_NODE", "2(x3),4", 1);
	ok(share_with(80 * PIECE, SIZE_MAX) == 15 * PIECE, "divided by the ranks on the node");
	unsetenv("SLURM_TASKS_PER_NODE");
	fake_kernel.ram = 80 * PIECE;
	fake_kernel.cgroup = 8 * PIECE;
	pin_options.max_pinned = PIN_PINNED_AUTO;
	lines = lines_begin();
	n = served_at_once(pd);
	lines_end(&lines);
	ok(n == 6 && pin_state.registered <= 6 * PIECE, "at most this much is pinned: %u", n);
	ok(lines.n == 1 && strstr(lines.text, "12.0 MiB (3/4 of RAM or cgroup, ") &&
		   strstr(lines.text, "PINALLOC_MAX_PINNED sets another"),
	   "one line names the limit");
	fake_kernel.cgroup = 16 * PIECE;
	usleep(1100000);
	ok(pin_budget_pinned_limit() == 12 * PIECE, "a limit that changes is seen");
	pin_options.max_pinned = SIZE_MAX;
	ok(served_at_once(pd) == PIECES, "without a limit everything is registered");
	ends_without_limits(pd);
}

/* What two memory regions have counts twice as locked memory only. */
static void counted_twice(void)
{
	struct ibv_pd *one = new_pd(), *two = new_pd();
	struct ibv_mr *a, *b, *c;
	struct lines lines;
	uint64_t before = pin_state_requests(PIN_UNPINNED);

	pin_options.max_pinned = 3 * PIECE;
	a = reg(one, heap[0], 2 * PIECE, RIGHTS);
	b = reg(two, heap[0] + PIECE, 2 * PIECE, RIGHTS);
	ok(a && b && pin_state_requests(PIN_UNPINNED) == before &&
		   pin_state.registered == 4 * PIECE,
	   "for PINALLOC_MAX_PINNED a page counts once");
	pin_mr_deregister(b);
	ok(pin_evict_one(NULL, 0) && pin_state.registered == 2 * PIECE, "one of them goes");
	b = reg(two, heap[1], 2 * PIECE + 1, RIGHTS);
	ok(pin_state_requests(PIN_UNPINNED) == before + 1 && reaches(b),
	   "a page more than there is room for is not registered");
	c = reg(two, heap[1], 2 * PIECE, RIGHTS);
	ok(pin_state_requests(PIN_UNPINNED) == before + 1 && reaches(c),
	   "if a range does not fit, a smaller one is still tried");
	pin_options.max_pinned = SIZE_MAX;
	pin_mr_deregister(b);
	pin_mr_deregister(c);
	pin_domain_dealloc(two);
	two = new_pd();
	fake_kernel.memlock = 7 * PIECE; /* of which half */
	lines = lines_begin();
	b = reg(two, heap[0], 2 * PIECE, RIGHTS);
	lines_end(&lines);
	ok(pin_state_requests(PIN_UNPINNED) == before + 2 && b && reaches(b),
	   "so does the limit on locked memory");
	ok(lines.n == 1 && strstr(lines.text, "7.0 MiB of ulimit -l"), "one line says so");
	pin_mr_deregister(a);
	pin_mr_deregister(b);
	fake_kernel.memlock = SIZE_MAX;
	ok(!pin_domain_dealloc(one) && !pin_domain_dealloc(two) && !pin_state.registered,
	   "nothing is left");
}

/* A domain for each, so that each has memory regions of its own over the same pages. */
static void *share_pages(void *number)
{
	struct ibv_pd *pd = new_pd();
	uintptr_t refused = 0;

	for (int i = 0; i < 20 * PIECES; i++) {
		uint64_t served = fake_verbs.tried;
		struct ibv_mr *mr = reg(pd, heap[i % 3], PIECE + PIN_PAGE * (1 + i % 9),
					RIGHTS);

		refused += !reaches(mr) || !pin_proxy_of(mr);
		pin_mr_deregister(mr);
		/* Of one that does not fit nothing stays counted. */
		if (fake_verbs.tried != served)
			pin_mr_deregister(reg(pd, heap[4], 8 * PIECE, RIGHTS));
	}
	pin_domain_dealloc(pd);
	return (void *)refused;
}

static void shared_by_threads(void)
{
	struct ibv_pd *pd = new_pd();

	pin_options.max_pinned = 5 * PIECE;
	ok(!in_threads(THREADS, share_pages) && !pin_state.registered,
	   "domains of several threads pin the same pages, each of which counts once");
	pin_options.max_pinned = 2 * PIECE;
	ok(served_at_once(pd) == 2, "and none when they have gone");
	ends_without_limits(pd);
}

/* A wide memory region that does not fit is not worth a request. */
static void narrowed(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr;

	pin_options.max_pinned = 2 * PIN_PAGE;
	pin_mr_deregister(reg(pd, heap[9], 2 * PIN_PAGE, RIGHTS));
	mr = reg(pd, heap[9] + PIN_PAGE, 2 * PIN_PAGE, RIGHTS);
	ok(reaches(mr) && pin_state.registered == 2 * PIN_PAGE,
	   "if what it overlaps does not fit with it, the requested range does");
	pin_mr_deregister(mr);
	ends_without_limits(pd);
}

static void locked_memory(void)
{
	char *a = heap[0], *b = heap[1];
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, a, PIECE, RIGHTS), *other;
	uint64_t evicted = pin_state.evicted;

	pin_mr_deregister(mr);
	fake_verbs.limit = PIECE + PIN_MIB;
	fake_kernel.memlock = 8 * PIECE;
	mr = reg(pd, b, PIECE, RIGHTS);
	ok(mr && pin_state.evicted == evicted + 1 && fake_verbs.live == 1,
	   "an idle memory region is evicted for one that is needed");
	other = reg(pd, a, 64, RIGHTS);
	ok(other && other->addr == a && fake_verbs.live == 2,
	   "one in use is not evicted: a small one has its own pages");
	pin_mr_deregister(other);
	pin_mr_deregister(mr);
	mr = reg(pd, &mr, 3 * PIN_MIB, RIGHTS);
	ok(mr && fake_verbs.live == 1, "an idle one is evicted for memory that is not heap");
	pin_mr_deregister(mr);
	fake_kernel.memlock = SIZE_MAX;
	fake_verbs.limit = SIZE_MAX;
	pin_options.max_pinned = PIECE - 1;
	evicted = pin_state.evicted;
	mr = reg(pd, b, PIECE, RIGHTS);
	ok(mr && mr->length == PIECE && pin_state.evicted == evicted,
	   "nothing is evicted for a range that cannot fit");
	pin_mr_deregister(mr);
	pin_options.max_pinned = PIECE;
	mr = reg(pd, a, PIECE, RIGHTS);
	pin_mr_deregister(mr);
	mr = reg(pd, b, PIECE, RIGHTS);
	ok(mr && fake_verbs.live == 1 && pin_state.registered == PIECE,
	   "eviction keeps PINALLOC_MAX_PINNED");
	pin_options.max_pinned = 2 * PIECE;
	pin_mr_deregister(reg(pd, a, 64, RIGHTS));
	evicted = pin_state.evicted;
	pin_mr_deregister(reg(pd, heap[2], 2 * PIECE, RIGHTS));
	ok(pin_state.evicted == evicted && fake_verbs.live == 2,
	   "nothing is evicted if what is in use leaves too little");
	pin_mr_deregister(mr);
	ends_without_limits(pd);
}

/* As when the program pins so much that the heap has more than its share. */
static void shrinking_share(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *used = reg(pd, heap[0], PIECE, RIGHTS), *idle, *own;

	idle = reg(pd, heap[1], PIECE, RIGHTS);
	pin_mr_deregister(idle);
	pin_options.max_pinned = PIECE / 2;
	fake_verbs.limit = 2 * PIECE + PIN_PAGE;
	fake_kernel.memlock = 4 * PIECE;
	own = reg(pd, &own, 2 * PIN_PAGE, RIGHTS);
	ok(own && reaches(own),
	   "above the share an idle one is evicted for memory that is not heap");
	ok(reaches(used), "one in use stays");
	pin_mr_deregister(own);
	pin_mr_deregister(used);
	ends_without_limits(pd);
}

/* One at a time, all over the heap; how many were not served. */
static unsigned refused_in_turn(struct ibv_pd *pd)
{
	unsigned refused = 0;

	for (int i = 0; i < 5 * PIECES; i++) {
		uint64_t served = pin_state_requests(PIN_SERVED);
		struct ibv_mr *mr = reg(pd, heap[i % PIECES] + i, 64, RIGHTS);

		refused += !mr || !reaches(mr) || pin_state_requests(PIN_SERVED) == served;
		pin_mr_deregister(mr);
	}
	return refused;
}

/* The errno values are those of real adapters, see regpool/ibverbs.h. */
static void memory_regions(void)
{
	static const int errors[] = {ENOMEM, EAGAIN, ENOSPC, EOVERFLOW};
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *held[4], *mr;

	fake_verbs.max_mr = 4;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(errors); i++) {
		uint64_t evicted = pin_state.evicted;

		fake_verbs.full_errno = errors[i];
		ok(!refused_in_turn(pd) && pin_state.evicted > evicted,
		   "if the adapter is full (errno %d), an idle memory region is evicted",
		   errors[i]);
	}
	mr = reg(pd, &mr, sizeof mr, RIGHTS);
	ok(mr && reaches(mr), "so it is for memory that is not heap");
	pin_mr_deregister(mr);
	for (int i = 0; i < 4; i++)
		held[i] = reg(pd, heap[i], 64, RIGHTS);
	errno = 0;
	mr = reg(pd, heap[4], 64, RIGHTS);
	ok(!mr && errno == EOVERFLOW, "those in use stay, and the error is the adapter's");
	for (int i = 0; i < 4; i++) {
		ok(reaches(held[i]), "number %d is unchanged", i);
		pin_mr_deregister(held[i]);
	}
	ends_without_limits(pd);
}

/* Whether a request is served although the first registration for it fails. */
static bool is_served_after(struct ibv_pd *pd, char *p, int error)
{
	uint64_t served = pin_state_requests(PIN_SERVED);
	struct ibv_mr *mr;

	fake_verbs.fail_errno = error;
	fake_verbs.fail_next = 1;
	mr = reg(pd, p, 64, RIGHTS);
	if (!mr || !reaches(mr) || pin_mr_deregister(mr))
		return false;
	return pin_state_requests(PIN_SERVED) > served;
}

/* What one adapter has no room for does not go by what another has. */
static void other_adapters(void)
{
	struct ibv_pd *pd = new_pd(), *other = new_pd_of(fake_context_elsewhere());
	const struct pin_domain *domain = pin_domain_find(other);

	pin_mr_deregister(reg(other, heap[0], 64, RIGHTS));
	ok(!is_served_after(pd, heap[1], ENOSPC) && !is_served_after(pd, heap[2], ENOMEM) &&
		   domain->registered == PIN_PAGE,
	   "what another adapter has makes no room, and stays");
	pin_mr_deregister(reg(pd, heap[3], 64, RIGHTS));
	ok(is_served_after(pd, heap[4], ENOSPC) && is_served_after(pd, heap[5], ENOMEM) &&
		   domain->registered == PIN_PAGE,
	   "what the adapter itself has is evicted, older or not");
	fake_kernel.memlock = 16 * PIECE;
	ok(is_served_after(pd, heap[6], ENOMEM) && !domain->registered,
	   "where locked memory is limited the oldest goes, of any adapter");
	fake_kernel.memlock = SIZE_MAX;
	ok(!pin_domain_dealloc(pd) && !pin_domain_dealloc(other) && !pin_state.registered,
	   "nothing is left");
}

/* Idle memory regions of so much in all. */
static void leave_idle(struct ibv_pd *pd, size_t n)
{
	for (size_t i = 0; i < n; i++)
		pin_mr_deregister(reg(pd, heap[i], PIECE, RIGHTS));
}

/* Those of the program are not served from the heap. */
static struct ibv_mr *reg_own(struct ibv_pd *pd, size_t n_bytes)
{
	return reg(pd, heap, n_bytes, RIGHTS);
}

/* Nobody tells the limit. */
static void hidden_limit(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *own[PIECES + 1], *mr;
	uint64_t evicted = pin_state.evicted, served;
	unsigned n = 0, tried;

	fake_verbs.limit = PIECES * PIECE;
	leave_idle(pd, PIECES);
	own[0] = reg_own(pd, PIECE / 2);
	ok(own[0] && pin_state.evicted == evicted + 1,
	   "at a limit that is not told, an idle memory region is evicted");
	own[1] = reg_own(pd, 3 * PIECE);
	ok(own[1] && reaches(own[1]) && pin_state.evicted == evicted + 4,
	   "and for a large one as many as are needed");
	served = pin_state_requests(PIN_SERVED);
	mr = reg(pd, heap[0], PIECE, RIGHTS);
	ok(mr && reaches(mr) && pin_state_requests(PIN_SERVED) == served + 1 &&
		   pin_state.evicted == evicted + 5,
	   "so it is for a request for heap memory");
	for (n = 2; n <= PIECES && (own[n] = reg_own(pd, PIECE)); n++)
		;
	ok(errno == ENOMEM && fake_verbs.registered == PIECES * PIECE - PIECE / 2,
	   "the program gets all but what it has in use, and then the adapter's error");
	tried = fake_verbs.tried;
	ok(!reg_own(pd, PIECE) && fake_verbs.tried == tried + 1,
	   "when nothing is idle a call is made once");
	pin_mr_deregister(mr);
	while (n--)
		pin_mr_deregister(own[n]);
	ends_without_limits(pd);
}

static void unknown_size(void)
{
	struct ibv_pd *pd = new_pd();
	struct pin_retry retry = pin_retry_begin(pd->context, 0);

	leave_idle(pd, PIECES);
	ok(!pin_retry_evict(&retry, EINVAL) && pin_state.registered == PIECES * PIECE,
	   "a call that is wrong evicts nothing");
	fake_kernel.memlock = PIN_PAGE;
	ok(pin_retry_evict(&retry, ENOMEM) && errno == ENOMEM &&
		   pin_state.registered == (PIECES - 1) * PIECE,
	   "a call of unknown size evicts a granule");
	fake_kernel.memlock = SIZE_MAX;
	ok(!pin_retry_evict(&retry, ENOMEM) && pin_state.registered == (PIECES - 1) * PIECE,
	   "once");
	ends_without_limits(pd);
}

#define EACH (PIECES / THREADS * (PIECE / PIN_MIB))

static pthread_barrier_t storm_begins;
static _Atomic unsigned storm_refused;
static struct ibv_mr *storm[THREADS][EACH];

static void *register_each(void *arg)
{
	struct ibv_mr **mine = storm[(uintptr_t)arg % THREADS];
	struct ibv_pd *pd = *mine ? (*mine)->pd : NULL;

	pthread_barrier_wait(&storm_begins);
	for (size_t i = 1; i < EACH; i++)
		storm_refused += !(mine[i] = reg_own(pd, PIN_MIB));
	return NULL;
}

/* Others may take what a thread has evicted. Here all that there is room for is needed. */
static void hidden_limit_for_threads(void)
{
	struct ibv_pd *pd = new_pd();

	pthread_barrier_init(&storm_begins, NULL, THREADS);
	fake_verbs.limit = SIZE_MAX;
	for (int round = 0; round < 50; round++) {
		for (size_t i = 0; i < THREADS; i++)
			storm[i][0] = reg_own(pd, PIN_MIB);
		leave_idle(pd, PIECES - THREADS * PIN_MIB / PIECE);
		fake_verbs.limit = PIECES * PIECE;
		in_threads(THREADS, register_each);
		for (size_t i = 0; i < THREADS * EACH; i++)
			if (storm[i / EACH][i % EACH])
				pin_mr_deregister(storm[i / EACH][i % EACH]);
		fake_verbs.limit = SIZE_MAX;
	}
	ok(!storm_refused, "%u threads get all there is room for; refused: %u", THREADS,
	   storm_refused);
	pthread_barrier_destroy(&storm_begins);
	ends_without_limits(pd);
}

/* What lacks may be much less than what is asked for. */
static void large_foreign(void)
{
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	pd = new_pd();
	fake_kernel.memlock = fake_verbs.limit = 64 * PIECE;
	for (int i = 0; i < PIECES; i++)
		pin_mr_deregister(reg(pd, heap[i], PIECE, RIGHTS));
	mr = reg(pd, &mr, 66 * PIECE, RIGHTS);
	ok(!mr && errno == ENOMEM && fake_verbs.live == PIECES,
	   "for more than may be locked nothing is evicted");
	mr = reg(pd, &mr, 60 * PIECE, RIGHTS);
	ok(mr && reaches(mr),
	   "for less there is room, even if the heap has not as much to evict");
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
	fake_kernel.memlock = fake_verbs.limit = SIZE_MAX;
	pd = new_pd();
	for (int i = 0; i < 4; i++)
		pin_mr_deregister(reg(pd, heap[i], 64, RIGHTS));
	fake_verbs.max_mr = 4;
	mr = reg(pd, &mr, 60 * PIECE, RIGHTS);
	ok(mr && reaches(mr), "if the adapter is full a small one makes room for a large one");
	pin_mr_deregister(mr);
	pin_mr_deregister(reg(pd, heap[0], 64, RIGHTS));
	mr = reg(pd, (void *)PIN_PAGE, (size_t)1 << 60, RIGHTS | IBV_ACCESS_ON_DEMAND);
	ok(mr && reaches(mr), "and for one with on-demand paging of more memory than there is");
	pin_mr_deregister(mr);
	ends_without_limits(pd);
}

static void changed_foreign(void)
{
	const int change = IBV_REREG_MR_CHANGE_TRANSLATION;
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, &mr, PIECE, RIGHTS), *used;
	int error;

	fake_kernel.memlock = fake_verbs.limit = 64 * PIECE;
	for (int i = 0; i < PIECES; i++)
		pin_mr_deregister(reg(pd, heap[i], PIECE, RIGHTS));
	used = reg(pd, heap[0], PIECE, RIGHTS);
	error = pin_mr_reregister(mr, change, NULL, &pd, 55 * PIECE, 0, NULL, NULL);
	ok(!error && reaches(mr) && mr->length == 55 * PIECE && reaches(used),
	   "idle ones are evicted for an MR of other memory that grows");
	error = pin_mr_reregister(mr, change, NULL, &pd, 64 * PIECE, 0, NULL, NULL);
	ok(error == IBV_REREG_MR_ERR_CMD && errno == ENOMEM && reaches(mr) && reaches(used) &&
		   mr->length == 55 * PIECE && fake_verbs.live == 2,
	   "when none is left it is as it was, and the error is the adapter's");
	fake_kernel.memlock = fake_verbs.limit = SIZE_MAX;
	pin_mr_deregister(used);
	ok(!pin_mr_deregister(mr) && !pin_domain_dealloc(pd) && !fake_verbs.live,
	   "nothing is left");
}

static void large_requests(void)
{
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	unsigned tried = fake_verbs.tried;

	fake_verbs.max_mr_size = PIECE - 1;
	pd = new_pd();
	mr = reg(pd, heap[0], 64, RIGHTS);
	ok(mr && reaches(mr) && mr->length == 64 && fake_verbs.tried == tried + 1,
	   "a range too large for the adapter goes to libibverbs");
	pin_mr_deregister(mr);
	nothing_is_left(pd);
	fake_verbs.max_mr_size = SIZE_MAX;
	pd = new_pd();
	ok(!refused_in_turn(pd), "another PD, perhaps of another device, tries again");
	pin_domain_dealloc(pd);
}

/* The registration of a request's pages with those it overlaps fails for any reason, once. */
static void failures(void)
{
	static const int errors[] = {EINVAL, EFAULT, EACCES};
	struct ibv_pd *pd;

	pd = new_pd();
	pin_granules_forget(PIN_IS_UNPINNABLE);
	for (size_t i = 0; i < PIN_ARRAY_SIZE(errors); i++) {
		uint64_t served = pin_state_requests(PIN_SERVED);
		struct ibv_mr *mr, *again;
		size_t before;

		pin_mr_deregister(reg(pd, heap[i] + 2 * PIN_PAGE, 2 * PIN_PAGE, RIGHTS));
		before = fake_verbs.registered;
		fake_verbs.fail_errno = errors[i];
		fake_verbs.fail_next = 1;
		mr = reg(pd, heap[i] + 3 * PIN_PAGE, 2 * PIN_PAGE, RIGHTS);
		ok(mr && reaches(mr) && pin_state_requests(PIN_SERVED) == served + 2 &&
			   fake_verbs.registered == before + 2 * PIN_PAGE,
		   "a request has its own pages if more fails with errno %d", errors[i]);
		again = reg(pd, heap[i] + PIN_PAGE, 2 * PIN_PAGE, RIGHTS);
		/* Only pages that could not be pinned stay out of larger memory regions. */
		ok(again && reaches(again) &&
			   fake_verbs.registered ==
				   before + (errors[i] == EFAULT ? 4 : 3) * PIN_PAGE,
		   "and so have others there, at once");
		pin_mr_deregister(mr);
		pin_mr_deregister(again);
	}
	pin_granules_forget(PIN_IS_UNPINNABLE);
	ends_without_limits(pd);
}

/* No limit is the reason. */
static void protected_page(void)
{
	struct ibv_pd *pd = new_pd();
	uint64_t protected = pin_state_requests(PIN_PROTECTED);
	struct lines lines = lines_begin();
	struct ibv_mr *mr = reg(pd, heap[1], 64, RIGHTS);

	fake_verbs.fail_errno = EFAULT;
	fake_verbs.fail_next = 1;
	pin_keys_create_ahead(pin_access_set_of(pin_domain_find(pd), RIGHTS),
			      pin_range_of(heap[0], PIECE));
	lines_end(&lines);
	ok(!fake_verbs.fail_next && !lines.n,
	   "of one that is about to be replaced nothing is said before it is requested");
	pin_mr_deregister(mr);
	lines = lines_begin();
	fake_verbs.fail_next = 1;
	mr = reg(pd, heap[0], 64, RIGHTS);
	lines_end(&lines);
	ok(mr && reaches(mr) && pin_state_requests(PIN_PROTECTED) == protected + 1,
	   "a page that may be read, but not pinned, counts as protected");
	ok(lines.n == 1 && strstr(lines.text, "a page there is protected"), "one line says so");
	pin_mr_deregister(mr);
	pin_granules_forget(PIN_IS_UNPINNABLE);
	ends_without_limits(pd);
}

static int refuse(struct ibv_mr *mr)
{
	return EBUSY;
}

/* What libibverbs does not let go is registered, and used again. */
static void not_let_go(void)
{
	const struct pin_ibverbs *before = pin_ibverbs();
	struct pin_ibverbs table = *before;
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap[0], PIECE, RIGHTS);
	unsigned made = fake_verbs.made;

	pin_mr_deregister(mr);
	table.dereg_mr = refuse;
	pin_ibverbs_replace(&table);
	ok(!pin_evict_one(NULL, 0) && fake_verbs.live == 1 && pin_state.registered == PIECE,
	   "a memory region that cannot be deregistered still counts");
	pin_ibverbs_replace(before);
	mr = reg(pd, heap[0], 64, RIGHTS);
	ok(reaches(mr) && fake_verbs.made == made, "it still serves requests");
	pin_mr_deregister(mr);
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live && !pin_state.registered,
	   "it goes when it can be deregistered");
}

static int (*let_go)(struct ibv_mr *mr);
static uint32_t stuck; /* its lkey */

static int refuse_one(struct ibv_mr *mr)
{
	return mr->lkey == stuck ? EBUSY : let_go(mr);
}

/* The oldest, with which each eviction begins. */
static void one_not_let_go(void)
{
	const struct pin_ibverbs *before = pin_ibverbs();
	struct pin_ibverbs table = *before;
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap[0], 64, RIGHTS), *own;

	stuck = mr->lkey;
	let_go = before->dereg_mr;
	table.dereg_mr = refuse_one;
	pin_ibverbs_replace(&table);
	pin_mr_deregister(mr);
	for (int i = 1; i < 3; i++)
		pin_mr_deregister(reg(pd, heap[i], 64, RIGHTS));
	fake_verbs.max_mr = 3;
	own = reg(pd, &own, sizeof own, RIGHTS);
	ok(own && reaches(own),
	   "if one memory region cannot be deregistered, another is evicted");
	mr = reg(pd, heap[3], 64, RIGHTS);
	ok(mr && reaches(mr) && pin_state.registered == 2 * PIN_PAGE,
	   "and the last but that one");
	ok(!pin_evict_one(NULL, 0) && fake_verbs.live == 3,
	   "when only that one is idle, nothing is");
	pin_mr_deregister(own);
	pin_mr_deregister(mr);
	pin_ibverbs_replace(before);
	ends_without_limits(pd);
}

/* More idle memory regions than a search looks at to find the oldest. */
static void many(void)
{
	const size_t n = 1000, wanted = 600;
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr;
	size_t left = 0;

	for (size_t i = 0; i < n; i++)
		pin_mr_deregister(reg(pd, heap[0] + 2 * i * PIN_PAGE, 64, RIGHTS));
	pin_options.max_pinned = n * PIN_PAGE;
	mr = reg(pd, heap[PIECES / 2], wanted * PIN_PAGE, RIGHTS);
	ok(mr && reaches(mr) && pin_state.registered == n * PIN_PAGE,
	   "of many that are idle so many go as a request needs");
	pin_mr_deregister(mr);
	while (pin_evict_one(NULL, false))
		left++;
	ok(left == n - wanted + 1 && !pin_state.registered, "the rest goes one by one");
	ends_without_limits(pd);
}

/* No registration for more than there is room for, by the limits that are known. */
static void failed_before(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr[3];
	uint64_t before = pin_state_requests(PIN_UNPINNED);
	unsigned tried = fake_verbs.tried;

	pin_options.max_pinned = PIN_PAGE - 1;
	mr[0] = reg(pd, heap[0], PIECE, RIGHTS);
	mr[1] = reg(pd, heap[0] + 1, 64, RIGHTS);
	mr[2] = reg(pd, heap[0], 2 * PIECE, RIGHTS);
	ok(reaches(mr[0]) && reaches(mr[1]) && reaches(mr[2]) &&
		   fake_verbs.tried == tried + 3 &&
		   pin_state_requests(PIN_UNPINNED) == before + 3,
	   "what does not fit goes to libibverbs at once");
	for (int i = 0; i < 3; i++)
		pin_mr_deregister(mr[i]);
	ends_without_limits(pd);
}

/* What is in use cannot be evicted. */
static void small_buffers(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *small[PIECES], *own;
	uint64_t served = pin_state_requests(PIN_SERVED);

	fake_kernel.memlock = 64 * PIECE;
	fake_verbs.limit = 64 * PIECE;
	for (int i = 0; i < PIECES; i++) {
		fake_touch(heap[i], PIECE);
		small[i] = reg(pd, heap[i], 64, RIGHTS);
	}
	ok(pin_state_requests(PIN_SERVED) == served + PIECES &&
		   fake_verbs.registered == PIECES * PIN_PAGE,
	   "under a limit on locked memory small buffers have their own pages");
	own = reg(pd, &own, 63 * PIECE, RIGHTS);
	ok(own && reaches(own), "so there is room for what the program registers");
	pin_mr_deregister(own);
	for (int i = 0; i < PIECES; i++)
		pin_mr_deregister(small[i]);
	ends_without_limits(pd);
}

/* ulimit -l, or what the program has registered itself, may change. */
static void lower_limit(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr;

	fake_kernel.memlock = 32 * PIECE;
	for (int i = 0; i < PIECES; i++)
		pin_mr_deregister(reg(pd, heap[i], PIECE, RIGHTS));
	ok(pin_state.registered == 16 * PIECE, "half of the limit is registered");
	fake_kernel.memlock = 10 * PIECE;
	mr = reg(pd, &mr, sizeof mr, RIGHTS);
	ok(reaches(mr) && pin_state.registered <= 5 * PIECE &&
		   pin_state.registered >= 2 * PIECE,
	   "if the limit is lower when the program registers, idle memory regions go");
	pin_mr_deregister(mr);
	ends_without_limits(pd);
}

int main(void)
{
	struct pin_span *span = NULL;

	if (!lazy_pool())
		return 99;
	fake_kernel.keeps_memory = true;
	heap[0] = grow(&span, PIECES * PIECE);
	for (int i = 1; i < PIECES; i++)
		heap[i] = heap[0] + (size_t)i * PIECE;
	fake_touch(heap[0], PIECES * PIECE);
	share_of_memory();
	counted_twice();
	shared_by_threads();
	locked_memory();
	shrinking_share();
	memory_regions();
	other_adapters();
	hidden_limit();
	unknown_size();
	hidden_limit_for_threads();
	large_requests();
	large_foreign();
	changed_foreign();
	failures();
	protected_page();
	failed_before();
	not_let_go();
	one_not_let_go();
	many();
	narrowed();
	small_buffers();
	lower_limit();
	ok(!fake_verbs.live && !fake_verbs.wrong, "nothing is left in the end");
	return done_testing();
}
