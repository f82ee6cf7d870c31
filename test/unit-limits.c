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
#include "regpool/state.h"
#include "test/fake-kernel.h"
#include "test/lines.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECES 16

static char *heap[PIECES];

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
	ok(!pin_domain_dealloc(pd) && !pin_state.registered && !pin_state.registered,
	   "nothing is left");
}

/* What two memory regions have counts twice. */
static void counted_twice(void)
{
	struct ibv_pd *one = new_pd(), *two = new_pd();
	struct ibv_mr *a, *b, *c;
	struct lines lines;
	uint64_t before = pin_state_requests(PIN_UNPINNED);

	pin_options.max_pinned = 3 * PIECE;
	a = reg(one, heap[0], 2 * PIECE, RIGHTS);
	b = reg(two, heap[0], 2 * PIECE, RIGHTS);
	ok(a && b && pin_state_requests(PIN_UNPINNED) == before + 1 &&
		   pin_state.registered == 2 * PIECE,
	   "PINALLOC_MAX_PINNED counts each memory region");
	c = reg(two, heap[0], 64, RIGHTS);
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
	pin_options.max_pinned = SIZE_MAX;
	ok(!pin_domain_dealloc(pd) && !pin_state.registered && !pin_state.registered,
	   "nothing is left");
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
	pin_options.max_pinned = SIZE_MAX;
	pin_mr_deregister(mr);
	ok(!pin_domain_dealloc(pd) && !pin_state.registered, "nothing is left");
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
	pin_options.max_pinned = SIZE_MAX;
	fake_verbs.limit = fake_kernel.memlock = SIZE_MAX;
	pin_mr_deregister(own);
	pin_mr_deregister(used);
	ok(!pin_domain_dealloc(pd), "nothing is left");
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
	fake_verbs.max_mr = INT_MAX;
	fake_verbs.full_errno = ENOMEM;
	ok(!pin_domain_dealloc(pd), "nothing is left");
}

/* The adapter says that it can have many memory regions, and a control group allows four. */
static void few_objects(void)
{
	uint64_t evicted = pin_state.evicted;
	struct ibv_pd *pd;

	fake_verbs.told_max_mr = 0;
	pd = new_pd();
	fake_verbs.max_mr = 4;
	fake_verbs.full_errno = EAGAIN;
	fake_kernel.objects = 4;
	ok(!refused_in_turn(pd) && pin_state.evicted > evicted,
	   "if a control group limits objects, idle memory regions are evicted");
	fake_kernel.objects = 0;
	fake_verbs.max_mr = INT_MAX;
	fake_verbs.full_errno = ENOMEM;
	fake_verbs.told_max_mr = 16;
	ok(!pin_domain_dealloc(pd), "nothing is left");
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

#define EFA   0x1d0f
#define CELLS (96 * PIN_GIB / PIN_CELL) /* what its page table has */

/* Registers cell after cell, the first one in use. Returns how many are refused. */
static unsigned refused_cells(char *p, size_t n)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *used = reg(pd, p, PIN_CELL, RIGHTS), *mr;
	unsigned refused = 0;

	for (size_t i = 1; i < n; i++) {
		mr = reg(pd, p + i * PIN_CELL, PIN_CELL, RIGHTS);
		refused += !mr || !reaches(mr);
		if (mr)
			pin_mr_deregister(mr);
	}
	refused += !reaches(used);
	pin_mr_deregister(used);
	pin_domain_dealloc(pd);
	return refused;
}

static void page_tables(void)
{
	struct pin_span *many = NULL;
	char *p = grow(&many, PIN_GIB);
	uint64_t evicted = pin_state.evicted;

	/* The kernel refuses more than the machine has at once. */
	while (many->length < (CELLS + 16) * PIN_CELL)
		grow(&many, PIN_GIB);
	fake_verbs.told_max_mr = 0;
	fake_verbs.limit = CELLS * PIN_CELL;
	fake_verbs.vendor_id = EFA;
	ok(!refused_cells(p, CELLS + 16) && pin_state.evicted == evicted + 16,
	   "if the adapter's page table is full, idle memory regions are evicted");
	evicted = pin_state.evicted;
	fake_verbs.vendor_id = 0;
	ok(refused_cells(p, CELLS + 16) == 16 && pin_state.evicted == evicted,
	   "other adapters have no such limit that is known");
	fake_verbs.told_max_mr = 16;
	fake_verbs.limit = SIZE_MAX;
}

/* What lacks may be much less than what is asked for. */
static void large_foreign(void)
{
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	fake_verbs.told_max_mr = 0;
	pd = new_pd();
	fake_kernel.memlock = fake_verbs.limit = 64 * PIECE;
	for (int i = 0; i < PIECES; i++)
		pin_mr_deregister(reg(pd, heap[i], PIECE, RIGHTS));
	mr = reg(pd, &mr, 66 * PIECE, RIGHTS);
	ok(!mr && errno == ENOMEM && fake_verbs.live == PIECES,
	   "for more than may be locked nothing is evicted");
	fake_verbs.told_max_mr = 16;
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
	fake_verbs.max_mr = INT_MAX;
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live, "nothing is left");
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
	error = pin_mr_reregister(mr, change, NULL, &pd, 55 * PIECE, 0, NULL);
	ok(!error && reaches(mr) && mr->length == 55 * PIECE && reaches(used),
	   "idle ones are evicted for an MR of other memory that grows");
	error = pin_mr_reregister(mr, change, NULL, &pd, 64 * PIECE, 0, NULL);
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
	ok(!pin_domain_dealloc(pd), "nothing is left");
	fake_verbs.max_mr_size = SIZE_MAX;
	pd = new_pd();
	ok(!refused_in_turn(pd), "another PD, perhaps of another device, tries again");
	pin_domain_dealloc(pd);
}

/* The registration of a request's pages with those it overlaps fails for any reason, once. */
static void failures(void)
{
	static const int errors[] = {ENOMEM, EAGAIN, EINVAL, EFAULT, EACCES, EIO};
	struct ibv_pd *pd;

	fake_verbs.told_max_mr = 0;
	pd = new_pd();
	pin_granules_retry_unpinnable();
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
		ok(again && reaches(again) && fake_verbs.registered == before + 4 * PIN_PAGE,
		   "and so have others there, at once");
		pin_mr_deregister(mr);
		pin_mr_deregister(again);
	}
	pin_granules_retry_unpinnable();
	fake_verbs.told_max_mr = 16;
	ok(!pin_domain_dealloc(pd), "nothing is left");
}

static int refuse(struct ibv_mr *mr)
{
	(void)mr;
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
	fake_verbs.max_mr = INT_MAX;
	pin_ibverbs_replace(before);
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live, "nothing is left");
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
	pin_options.max_pinned = SIZE_MAX;
	ok(!pin_domain_dealloc(pd) && !pin_state.registered, "nothing is left");
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
	fake_kernel.memlock = fake_verbs.limit = SIZE_MAX;
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live && !pin_state.registered,
	   "nothing is left");
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
	fake_kernel.memlock = SIZE_MAX;
	ok(!pin_domain_dealloc(pd) && !pin_state.registered && !pin_state.registered,
	   "nothing is left");
}

int main(void)
{
	struct pin_span *span = NULL;

	if (!lazy_pool())
		return 99;
	fake_kernel.keeps_memory = true;
	/* One memory region of the heap is a notable part of these. */
	fake_verbs.told_max_mr = 16;
	heap[0] = grow(&span, PIECES * PIECE);
	for (int i = 1; i < PIECES; i++)
		heap[i] = heap[0] + (size_t)i * PIECE;
	fake_touch(heap[0], PIECES * PIECE);
	share_of_memory();
	counted_twice();
	locked_memory();
	shrinking_share();
	memory_regions();
	few_objects();
	other_adapters();
	page_tables();
	large_requests();
	large_foreign();
	changed_foreign();
	failures();
	failed_before();
	not_let_go();
	one_not_let_go();
	narrowed();
	small_buffers();
	lower_limit();
	ok(!fake_verbs.live && !fake_verbs.wrong, "nothing is left in the end");
	return done_testing();
}
