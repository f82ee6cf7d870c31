/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A key has exactly the requested rights, for every access set and every kind of request. And
 * the cost: one memory region for each set, of which only those requested repeatedly are
 * registered ahead.
 */
#include <config.h>

#include "allocator/os.h"
#include "regpool/keys.h"
#include "regpool/state.h"
#include "test/beside.h"
#include "test/fake-kernel.h"
#include "test/lines.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>
#include <limits.h>

#define LOCAL  IBV_ACCESS_LOCAL_WRITE
#define READ   IBV_ACCESS_REMOTE_READ
#define WRITE  IBV_ACCESS_REMOTE_WRITE
#define ATOMIC IBV_ACCESS_REMOTE_ATOMIC
#define ALL    (LOCAL | READ | WRITE | ATOMIC)

static char *heap;

/* All there are; those that verbs refuse as well. */
static const unsigned sets[] = {0,
				READ,
				LOCAL,
				LOCAL | READ,
				LOCAL | WRITE,
				LOCAL | ATOMIC,
				LOCAL | READ | WRITE,
				LOCAL | READ | ATOMIC,
				LOCAL | WRITE | ATOMIC,
				ALL};
static const unsigned refused_sets[] = {WRITE,	       ATOMIC,	       READ | WRITE,
					READ | ATOMIC, WRITE | ATOMIC, READ | WRITE | ATOMIC};
#define N_SETS (2 * PIN_ARRAY_SIZE(sets))

/* Each with and without order. */
static unsigned set_at(size_t i)
{
	return sets[i / 2] | (i % 2 ? IBV_ACCESS_RELAXED_ORDERING : 0);
}

static void exact(void)
{
	unsigned made = fake_verbs.made, wrong = 0, apart = 0;
	uint64_t served = pin_state_requests(PIN_SERVED);
	struct ibv_mr *held[2 * N_SETS];
	struct ibv_pd *pd = new_pd();

	for (size_t i = 0; i < 2 * N_SETS; i++) {
		held[i] = reg(pd, heap + 100 * i, 100, set_at(i % N_SETS));
		wrong += !reaches(held[i]) ||
			 fake_access_of(held[i]->lkey) != set_at(i % N_SETS);
	}
	for (size_t i = 0; i < N_SETS; i++)
		apart += held[i]->lkey != held[i + N_SETS]->lkey;
	ok(!wrong && pin_state_requests(PIN_SERVED) == served + 2 * N_SETS,
	   "each of %zu access sets is served with keys of exactly its rights: %u", N_SETS,
	   wrong);
	ok(!apart && fake_verbs.made == made + N_SETS &&
		   pin_state.registered == N_SETS * PIN_PAGE,
	   "each access set has one memory region");
	ok(pin_domain_dealloc(pd) == EBUSY, "the PD is busy with registrations");
	for (size_t i = 0; i < 2 * N_SETS; i++)
		wrong += pin_mr_deregister(held[i]) != 0;
	ok(!wrong && !pin_domain_dealloc(pd) && !fake_verbs.live && !pin_state.registered,
	   "deallocating it deregisters all");
}

static void refused(void)
{
	const size_t n = PIN_ARRAY_SIZE(refused_sets);
	struct lines lines = lines_begin();
	struct ibv_pd *pd = new_pd();
	unsigned wrong = 0;

	for (size_t i = 0; i < n; i++) {
		errno = 0;
		wrong += reg(pd, heap, 64, refused_sets[i]) != NULL || errno != EINVAL;
		wrong += pin_domain_enable(pd, refused_sets[i]) != -EINVAL;
	}
	lines_end(&lines);
	ok(!wrong && pin_state_requests(PIN_UNSOUND) == n,
	   "rights that verbs refuse are refused by libibverbs");
	ok(!lines.n && !fake_verbs.live, "that is not logged, and nothing is left");
	ok(!pin_domain_dealloc(pd), "the PD can be deallocated");
}

/* PINALLOC_ACCESS=local: remote keys are libibverbs' own. */
static void local_only(void)
{
	struct ibv_pd *pd;
	struct ibv_mr *mr, *near;
	struct pin_mr_key key;
	uint32_t lkey, rkey;

	pin_options.access = PIN_ACCESS_LOCAL;
	pd = new_pd();
	near = reg(pd, heap + 1000, 64, LOCAL);
	ok(near && fake_access_of(near->lkey) == LOCAL && pin_state.registered == PIN_PAGE,
	   "within PINALLOC_ACCESS a request is served");
	mr = reg(pd, heap + 100, 64, ALL);
	lkey = mr->lkey;
	rkey = mr->rkey;
	ok(reaches(mr) && fake_access_of(lkey) == ALL && pin_state_requests(PIN_RIGHTS) == 1 &&
		   !fake_keys_reach(lkey, rkey, pd, heap + 99, 1) &&
		   !fake_keys_reach(lkey, rkey, pd, heap + 164, 1),
	   "beyond it the key is libibverbs' own, for the exact range");
	ok(!pin_mr_reregister(near, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RIGHTS, NULL,
			      NULL) &&
		   fake_access_of(near->lkey) == RIGHTS &&
		   !fake_keys_reach(near->lkey, near->rkey, pd, heap + 999, 1),
	   "so is the key of a changed registration");
	pin_mr_deregister(mr);
	ok(!fake_keys_reach(lkey, rkey, pd, heap + 100, 64),
	   "the key is invalid after ibv_dereg_mr");
	ok(pin_domain_enable(pd, LOCAL | READ) == -EACCES &&
		   pin_mr_lookup(pd, heap, 64, LOCAL | READ, &key) == -EACCES,
	   "enabling more than PINALLOC_ACCESS is refused, and so is a look-up");
	ok(!pin_mr_lookup(pd, heap, 64, LOCAL, &key) && fake_access_of(key.lkey) == LOCAL,
	   "a look-up within it is not");
	pin_mr_deregister(near);
	nothing_is_left(pd);
	pin_options.access = PIN_ACCESS_ALL;
}

static void changed(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap, 64, ALL);
	unsigned wrong = 0;
	uint32_t lkey;

	for (size_t i = 0; i < N_SETS; i++) {
		size_t to = i * 7 % N_SETS;

		wrong += pin_mr_reregister(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
					   (int)set_at(to), NULL, NULL) != 0;
		wrong += !reaches(mr) || fake_access_of(mr->lkey) != set_at(to);
	}
	ok(!wrong, "ibv_rereg_mr gives a key with exactly the new rights");
	lkey = mr->lkey;
	ok(pin_mr_reregister(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, WRITE, NULL,
			     NULL) == IBV_REREG_MR_ERR_CMD &&
		   mr->lkey == lkey && reaches(mr),
	   "ibv_rereg_mr changes nothing if verbs refuse the rights");
	ok(!pin_mr_reregister(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, heap + 64, 64, 0, NULL,
			      NULL) &&
		   mr->lkey == lkey,
	   "ibv_rereg_mr keeps rights that it does not change");
	pin_mr_deregister(mr);
	nothing_is_left(pd);
}

/* The rights of a key that is looked up with these, or what the look-up returns. */
static int looked_up_rights(struct ibv_pd *pd, unsigned access)
{
	struct pin_mr_key key = {0};
	int error = pin_mr_lookup(pd, heap, 64, access, &key);

	return error ? error : (int)fake_access_of(key.lkey);
}

static void looked_up_alone(struct ibv_pd *pd)
{
	unsigned wrong = 0;

	for (size_t i = 0; i < N_SETS; i++)
		wrong += looked_up_rights(pd, set_at(i)) != (int)set_at(i);
	for (size_t i = 0; i < PIN_ARRAY_SIZE(refused_sets); i++)
		wrong += looked_up_rights(pd, refused_sets[i]) != -EINVAL;
	ok(!wrong, "looked-up keys have exactly the rights asked for");
	ok(looked_up_rights(pd, LOCAL | IBV_ACCESS_MW_BIND) == -EACCES,
	   "none have rights that memory regions of the heap never have");
	ok(!pin_domain_disarm(pd), "the PD is disabled");
}

static void looked_up(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap, 64, LOCAL);
	uint64_t before = pin_state_requests(PIN_RIGHTS);

	looked_up_alone(pd);
	ok(reaches(mr) && fake_access_of(mr->lkey) == LOCAL,
	   "registrations are not affected by that");
	pin_mr_deregister(mr);
	pin_domain_disarm(pd);
	ok(!pin_domain_enable(pd, LOCAL | READ) &&
		   pin_domain_enable(pd, LOCAL | WRITE) == -EEXIST,
	   "a PD that is enabled first has no other rights");
	ok(looked_up_rights(pd, LOCAL | READ) == (LOCAL | READ) &&
		   looked_up_rights(pd, READ) == READ &&
		   looked_up_rights(pd, LOCAL | WRITE) == -EACCES,
	   "nor have its keys");
	mr = reg(pd, heap, 64, LOCAL | WRITE);
	ok(fake_access_of(mr->lkey) == (LOCAL | WRITE) &&
		   pin_state_requests(PIN_RIGHTS) == before + 1,
	   "requests for more go to libibverbs");
	pin_mr_deregister(mr);
	mr = reg(pd, heap, 64, LOCAL);
	ok(fake_access_of(mr->lkey) == LOCAL && pin_state_requests(PIN_RIGHTS) == before + 1,
	   "a request for fewer rights gets fewer");
	ok(!pin_domain_disarm(pd) && looked_up_rights(pd, ALL) == (int)ALL,
	   "disabling ends the limit, even with registrations in use");
	pin_mr_deregister(mr);
	nothing_is_left(pd);
}

/* --- ahead of requests ---------------------------------------------------------------------
 */

/* Memory that is in use, too far apart for one memory region over two of them. */
#define ISLANDS 16
#define APART	(8 * PIECE)

static char *island(size_t i)
{
	return heap + i * APART;
}

#define QUIET_US 60000 /* more than the thread waits for more new pages */
#define LOOKS	 8     /* two and more for each pass, as there are two chunks at most */

struct wanted {
	struct ibv_pd *pd;
	unsigned access;
	size_t n; /* islands that have keys with these rights */
};

static bool has(const struct wanted *wanted)
{
	struct pin_domain *domain = pin_domain_find(wanted->pd);
	struct pin_access_set *set = pin_access_set_of(domain, wanted->access);
	size_t n = 0;

	for (size_t i = 0; i < ISLANDS; i++)
		n += pin_keys_covering(set, island(i)) > 0;
	return n == wanted->n;
}

/* The thread has a pace of its own. */
static bool gets(struct ibv_pd *pd, unsigned access, size_t n)
{
	struct wanted wanted = {pd, access, n};

	return soon(has(&wanted));
}

/* The thread has looked at all of it again, long after a page was new. */
static void let_it_look(void)
{
	usleep(QUIET_US);
	for (int i = 0; i < LOOKS; i++) {
		unsigned looks = fake_kernel.looks;

		pin_state_changed();
		soon(fake_kernel.looks != looks);
	}
}

static bool keeps(struct ibv_pd *pd, unsigned access, size_t n)
{
	let_it_look();
	return has(&(struct wanted){pd, access, n});
}

static void ask(struct ibv_pd *pd, unsigned access, size_t first, size_t last)
{
	for (size_t i = first; i <= last; i++)
		pin_mr_deregister(reg(pd, island(i), 64, access));
}

static void ahead(void)
{
	struct ibv_pd *pd;

	for (size_t i = 0; i < ISLANDS; i++)
		fake_touch(island(i), PIECE);
	pin_options.mode = PIN_MODE_EAGER;
	pd = new_pd();
	ask(pd, RIGHTS, 0, 0);
	ok(gets(pd, RIGHTS, ISLANDS), "with the first rights all memory is registered ahead");
	ask(pd, LOCAL, 0, 2);
	ask(pd, LOCAL, 0, 2);
	ok(keeps(pd, LOCAL, 3), "with other rights only what is requested is registered");
	ask(pd, LOCAL, 3, 3);
	ok(gets(pd, LOCAL, ISLANDS), "after several requests all memory is registered ahead");
	ok(!pin_domain_enable(pd, READ) && gets(pd, READ, ISLANDS),
	   "so it is after enabling it");
	ask(pd, ALL, 5, 5);
	ok(keeps(pd, ALL, 1), "further rights again start with requests only");
	ok(!pin_domain_disarm(pd) && !fake_verbs.live, "disabling deregisters all");
	ask(pd, LOCAL, 0, 0);
	ok(gets(pd, LOCAL, ISLANDS) && keeps(pd, RIGHTS, 0),
	   "after that, the next rights are the first");
	nothing_is_left(pd);
}

/* As EFA's, whose users keep memory regions in a table by key. */
static void unique(void)
{
	struct ibv_device *device = fake_context()->device;
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mrs[3], *again;

	device->node_type = IBV_NODE_UNSPECIFIED;
	for (int i = 0; i < 3; i++)
		mrs[i] = reg(pd, heap + 64 * i, 64, RIGHTS);
	ok(mrs[0]->rkey != mrs[1]->rkey && mrs[1]->rkey != mrs[2]->rkey &&
		   mrs[0]->rkey != mrs[2]->rkey && pin_state_requests(PIN_SHARED) == 2,
	   "where keys have to be unique, those of buffers in use are");
	pin_mr_deregister(mrs[0]);
	again = reg(pd, heap + 300, 64, RIGHTS);
	ok(pin_state_requests(PIN_SHARED) == 2, "a key that is not in use is served");
	pin_mr_deregister(again);
	pin_mr_deregister(mrs[1]);
	pin_mr_deregister(mrs[2]);
	device->node_type = IBV_NODE_CA;
	nothing_is_left(pd);
}

static void too_long(void)
{
	struct ibv_pd *pd = new_pd();
	uint64_t began = pin_os_now_ns();

	pin_mr_deregister(reg(pd, heap, (size_t)1 << 60, RIGHTS));
	ok(pin_os_now_ns() - began < 1000000000, "a length beyond all memory takes no time");
	pin_domain_dealloc(pd);
}

int main(void)
{
	struct pin_span *span = NULL;

	if (!lazy_pool())
		return 99;
	fake_kernel.keeps_memory = true;
	heap = grow(&span, ISLANDS * APART);
	fake_touch(heap, PIECE);
	exact();
	refused();
	local_only();
	changed();
	looked_up();
	ahead();
	unique();
	too_long();
	return done_testing();
}
