/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations, with a libibverbs that keeps the kernel's rules and fails on demand.
 */
#include <config.h>

#include "regpool/evict.h"
#include "regpool/fork.h"
#include "regpool/keys.h"
#include "regpool/proxy.h"
#include "regpool/segments.h"
#include "regpool/state.h"
#include "test/beside.h"
#include "test/fake-kernel.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECES 8
static char *heap, *heap_end;

static void served(void)
{
	struct ibv_pd *pd = new_pd();
	unsigned made = fake_verbs.made;
	struct ibv_mr *a = reg(pd, heap + 100, 5000, RIGHTS);
	struct ibv_mr *b = reg(pd, heap + 5000, 2 * PIN_PAGE - 5000, RIGHTS);

	ok(a && b && fake_verbs.made == made + 1, "two requests share one real registration");
	ok(a->addr == heap + 100 && a->length == 5000, "each MR has the requested address");
	ok(a->lkey == b->lkey && a->rkey == b->rkey, "both have the keys of one memory region");
	ok(a->pd == pd && a->context == fake_context(), "each MR has the PD of its request");
	ok(!pin_mr_deregister(a) && !pin_mr_deregister(b), "they can be deregistered");
	ok(fake_verbs.made == made + 1 && fake_verbs.live,
	   "the memory region stays registered");
	ok(pin_mr_deregister(a) == EINVAL, "a second deregistration is refused");
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live, "deallocating the PD deregisters it");
}

static struct ibv_mr *reg_pages(struct ibv_pd *pd, size_t first, size_t end)
{
	return reg(pd, heap + first * PIN_PAGE, (end - first) * PIN_PAGE, RIGHTS);
}

/* Memory regions never change: over a border of what there is comes another one. */
static void wider(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *low = reg_pages(pd, 0, 4), *high = reg_pages(pd, 6, 10);
	struct ibv_mr *both, *all, *other;

	ok(fake_verbs.live == 2 && low->lkey != high->lkey,
	   "distant ranges get separate memory regions");
	pin_mr_deregister(high);
	both = reg_pages(pd, 3, 7);
	ok(reaches(both) && fake_verbs.live == 2 && fake_verbs.registered == 11 * PIN_PAGE,
	   "a range across a border gets a memory region over both sides, replacing an idle "
	   "one");
	ok(reaches(low) && pin_state.registered == 11 * PIN_PAGE,
	   "a memory region in use stays, and is not widened");
	ok(pin_state.registered == fake_verbs.registered, "the statistics count both");
	all = reg_pages(pd, 0, 10);
	high = reg_pages(pd, 3, 4);
	ok(high->lkey == all->lkey && all->lkey != both->lkey && all->lkey != low->lkey,
	   "look-ups return the wider memory region");
	pin_mr_deregister(low);
	pin_mr_deregister(both);
	other = reg(pd, heap + 3 * PIECE, 64, RIGHTS);
	ok(fake_verbs.live == 2, "the narrower ones are deregistered when they have no users");
	pin_mr_deregister(all);
	pin_mr_deregister(high);
	pin_mr_deregister(other);
	nothing_is_left(pd);
}

/* Registering what is idle again takes time. */
static void much_larger(void)
{
	struct ibv_pd *pd = new_pd();

	pin_mr_deregister(reg_pages(pd, 0, 64));
	pin_mr_deregister(reg_pages(pd, 63, 66));
	ok(fake_verbs.live == 2 && fake_verbs.registered == (64 + 3) * PIN_PAGE,
	   "a request takes nothing of a memory region that is much larger");
	pin_mr_deregister(reg_pages(pd, 60, 70));
	ok(fake_verbs.live == 1 && fake_verbs.registered == 70 * PIN_PAGE,
	   "a longer one replaces all idle ones that it overlaps");
	nothing_is_left(pd);
}

/* A wide memory region goes, and a narrow one in it stays because somebody uses it. */
static void narrow_again(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *low = reg(pd, heap, 64, RIGHTS), *both, *again;
	unsigned made;

	both = reg(pd, heap, 2 * PIECE, RIGHTS);
	pin_mr_deregister(both);
	made = fake_verbs.made;
	ok(pin_evict_one(NULL, 0) && fake_verbs.live == 1 && reaches(low),
	   "the wide memory region can be evicted");
	again = reg(pd, heap + PIN_PAGE - 64, 64, RIGHTS);
	ok(again->lkey == low->lkey && fake_verbs.made == made,
	   "then narrower ones serve their part");
	pin_mr_deregister(low);
	pin_mr_deregister(again);
	nothing_is_left(pd);
}

static void passed(void)
{
	struct ibv_pd *pd = new_pd();
	char stack[64];
	struct ibv_mr *mr;
	uint64_t before = pin_state_requests(PIN_FOREIGN);

	mr = reg(pd, stack, sizeof stack, RIGHTS);
	ok(mr && pin_state_requests(PIN_FOREIGN) == before + 1,
	   "memory that is not heap goes to libibverbs");
	ok(!pin_mr_deregister(mr), "it is deregistered there, too");
	mr = pin_mr_register(pd, heap, 4096, 0, RIGHTS, NULL);
	ok(mr && pin_state_requests(PIN_IOVA), "so does another device address");
	pin_mr_deregister(mr);
	mr = reg(pd, heap, 4096, RIGHTS | IBV_ACCESS_MW_BIND);
	ok(mr && pin_state_requests(PIN_RIGHTS) &&
		   fake_access_of(mr->lkey) == (RIGHTS | IBV_ACCESS_MW_BIND),
	   "rights beyond the memory regions' go to libibverbs");
	pin_mr_deregister(mr);
	mr = reg(pd, heap_end - 10, 20, RIGHTS);
	ok(mr && pin_state_requests(PIN_SPLIT), "and what is not in the heap as a whole");
	pin_mr_deregister(mr);
	ok(!fake_verbs.live, "nothing is left");
	ok(!pin_domain_dealloc(pd), "the PD can be deallocated");
}

static void unseen(void)
{
	struct ibv_pd *pd = pin_ibverbs()->alloc_pd(fake_context());
	struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS);
	struct pin_mr_key keys;

	ok(mr && pin_state_requests(PIN_UNSEEN) == 1 && fake_access_of(mr->lkey) == RIGHTS,
	   "requests in a PD whose allocation was not seen go to libibverbs");
	ok(look_up(pd, heap, 64, &keys) == -ENOMEM, "look-ups in it fail");
	ok(!pin_ibverbs()->dereg_mr(mr), "libibverbs' own ibv_dereg_mr accepts its MRs");
	pin_ibverbs()->dealloc_pd(pd);
}

static void stale(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS), *other;

	pin_mr_deregister(mr);
	other = reg(pd, heap, 64, RIGHTS | IBV_ACCESS_MW_BIND);
	ok(pin_mr_deregister(mr) == EINVAL,
	   "a freed proxy stays invalid when a request goes to libibverbs");
	pin_mr_deregister(other);
	pin_domain_dealloc(pd);
}

static void teardown(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS);
	struct ibv_mr *foreign = reg(pd, &mr, sizeof mr, RIGHTS), *again;
	struct ibv_pd *other;
	uint32_t lkey = mr->lkey;

	ok(pin_domain_dealloc(pd) == EBUSY, "a PD with registrations is busy");
	ok(fake_verbs.live == 2 && mr->lkey == lkey, "its registrations do not change");
	pin_mr_deregister(mr);
	ok(pin_domain_dealloc(pd) == EBUSY, "a PD with a registration by libibverbs is busy");
	mr = reg(pd, heap, 64, RIGHTS);
	ok(mr && mr->lkey, "the PD is still usable");
	pin_mr_deregister(mr);
	pin_mr_deregister(foreign);
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live,
	   "it can be deallocated without registrations");
	pd = new_pd();
	mr = reg(pd, heap, 64, RIGHTS);
	ok(mr->lkey > lkey && mr->pd == pd, "a new PD, even at the same address, has new keys");
	pin_domain_close(fake_context());
	ok(!fake_verbs.live, "closing the device deregisters everything");
	other = new_pd();
	again = reg(other, heap, 64, RIGHTS);
	ok(pin_domain_dealloc(other) == EBUSY && !pin_mr_deregister(again) &&
		   !pin_domain_dealloc(other),
	   "the next PD is busy if it has proxies of its own");
	ok(!pin_mr_deregister(mr), "those of the closed device can still be deregistered");
	pin_domain_dealloc(pd);
}

/* The registration is the parent's. */
static bool child_leaves(struct ibv_mr *mr)
{
	unsigned live = fake_verbs.live;
	pid_t child = fork();
	int status = -1;

	if (!child) {
		pin_state_stop(PIN_CHILD);
		_exit(pin_mr_deregister(mr) || fake_verbs.live != live);
	}
	return waitpid(child, &status, 0) == child && !status;
}

/* What the adapter makes of it stands for the proxy from then on. */
static void changes(void)
{
	struct ibv_pd *pd = new_pd(), *other = new_pd();
	struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS);
	uint32_t lkey = mr->lkey;
	char stack[64];

	fake_verbs.rereg_errno = EOPNOTSUPP;
	ok(pin_mr_reregister(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, heap + 100, 7, 0, NULL,
			     NULL) == IBV_REREG_MR_ERR_CMD &&
		   errno == EOPNOTSUPP,
	   "where the adapter cannot change a registration, it says so");
	ok(mr->lkey == lkey && mr->addr == heap && reaches(mr) && fake_verbs.live == 1,
	   "and everything stays as it was");
	fake_verbs.rereg_errno = 0;
	ok(!pin_mr_reregister(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, heap + 100, 7, 0, NULL,
			      NULL) &&
		   mr->addr == heap + 100 && mr->length == 7 && reaches(mr),
	   "otherwise it has another address");
	ok(!pin_mr_reregister(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0, NULL, NULL) &&
		   mr->pd == other && reaches(mr),
	   "or another PD");
	ok(!pin_domain_dealloc(pd), "then the first PD can be deallocated");
	ok(!pin_mr_reregister(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, stack, 64, 0, NULL,
			      NULL) &&
		   mr->addr == stack && fake_access_of(mr->lkey) == RIGHTS && reaches(mr),
	   "or other memory than the heap");
	ok(!pin_mr_reregister(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1, NULL, NULL) &&
		   fake_access_of(mr->lkey) == 1,
	   "or other rights");
	ok(child_leaves(mr), "a child of fork() deregisters nothing");
	ok(!pin_mr_deregister(mr) && !pin_domain_dealloc(other) && !fake_verbs.live,
	   "nothing is left");
}

static void looked_up(char *a, char *b)
{
	struct ibv_pd *pd = new_pd();
	struct pin_mr_key keys, again;
	struct ibv_mr *mr;

	ok(!look_up(pd, a + 5, 100, &keys) && keys.lkey && keys.rkey, "keys are found");
	ok(keys.start <= (uintptr_t)a + 5 && keys.length >= 100 &&
		   fake_keys_reach(keys.lkey, keys.rkey, pd, (char *)keys.start, keys.length) &&
		   !fake_keys_reach(keys.lkey, keys.rkey, pd, (char *)keys.start,
				    keys.length + 1),
	   "with what they reach, to the byte");
	ok(!look_up(pd, a, 1, &again) && again.lkey == keys.lkey,
	   "look-ups return the same keys each time");
	ok(!look_up(pd, a, 0, &again) && !look_up(pd, b, 0, &again) &&
		   !look_up(pd, b, 1, &keys) && keys.lkey == again.lkey,
	   "an empty range has those of its address, whether there were any before or not");
	pin_domain_disarm(pd);
	look_up(pd, a, 1, &keys);
	fake_verbs.limit = PIN_PAGE;
	ok(look_up(pd, b, 4, &again) == -ENOMEM,
	   "a look-up returns -ENOMEM if memory cannot be pinned");
	mr = reg(pd, b, 4096, RIGHTS);
	ok(!mr && errno == ENOMEM && !look_up(pd, a, 1, &again) && again.lkey == keys.lkey,
	   "looked-up keys are never evicted");
	ok(!pin_domain_disarm(pd) && !fake_verbs.live, "disabling deregisters them");
	ok(!look_up(pd, b, 4, &again), "then there is room again");
	fake_verbs.limit = SIZE_MAX;
	errno = 77;
	ok(!pin_domain_disarm(pd) && !pin_domain_enable(pd, RIGHTS) && errno == 77,
	   "errno is unchanged");
	pin_domain_dealloc(pd);
}

/* --- what threads share ------------------------------------------------------------- */

static void *note_lane(void *seen)
{
	((unsigned *)seen)[pin_lane()]++;
	return NULL;
}

/* Before any other thread registers. */
static void lanes(void)
{
	unsigned seen[PIN_LANES] = {0}, alone = 0;
	pthread_t threads[PIN_LANES];

	for (unsigned i = 0; i < PIN_LANES; i++)
		pthread_create(&threads[i], NULL, note_lane, seen);
	for (unsigned i = 0; i < PIN_LANES; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < PIN_LANES; i++)
		alone += seen[i] == 1;
	ok(alone == PIN_LANES && pin_lanes() == PIN_LANES, "%u threads have lanes of their own",
	   alone);
	pthread_create(threads, NULL, note_lane, seen);
	pthread_join(threads[0], NULL);
	ok(pin_lanes() == PIN_LANES, "one more shares a lane");
}

#define LINE ((size_t)64)

/* The variables of the program and of the library, and the tables that requests use. */
extern char __data_start[], _end[];
static struct {
	char *start;
	size_t n_bytes;
} writable[16];
static size_t n_writable, n_writable_bytes;

/* What was in it, and the lines that are other than that. */
struct lines_written {
	char *copy;
	char *lines[64];
	size_t n;
};

static void add_writable(void *start, size_t n_bytes)
{
	writable[n_writable].start = start;
	writable[n_writable++].n_bytes = n_bytes;
	n_writable_bytes += n_bytes;
}

static void find_writable(struct pin_access_set *set, struct ibv_mr *mr)
{
	const struct pin_table *tables[] = {&set->covering, &set->in_part, &set->entries,
					    &set->regions, &set->users};
	uintptr_t data = PIN_ALIGN_DOWN((uintptr_t)__data_start, LINE);

	add_writable((void *)data, PIN_ALIGN_UP((uintptr_t)_end, LINE) - data);
	for (size_t i = 0; i < PIN_ARRAY_SIZE(tables); i++)
		add_writable(tables[i]->base, tables[i]->committed * tables[i]->element_size);
	add_writable(set->domain->access_sets, PIN_ACCESS_SETS * sizeof *set);
	add_writable((void *)PIN_ALIGN_DOWN((uintptr_t)mr, PIN_PAGE), PIN_PAGE); /* proxies */
}

static void copy_all(struct lines_written *it)
{
	char *to = it->copy;

	for (size_t i = 0; i < n_writable; to += writable[i++].n_bytes)
		memcpy(to, writable[i].start, writable[i].n_bytes);
}

static bool has_line(const struct lines_written *it, const char *line)
{
	for (size_t i = 0; i < it->n; i++)
		if (it->lines[i] == line)
			return true;
	return false;
}

static void note_written(struct lines_written *it)
{
	const char *before = it->copy;

	for (size_t i = 0; i < n_writable; before += writable[i++].n_bytes)
		for (size_t at = 0; at < writable[i].n_bytes; at += LINE) {
			char *line = writable[i].start + at;

			if (memcmp(before + at, line, LINE) != 0 && !has_line(it, line) &&
			    it->n < PIN_ARRAY_SIZE(it->lines))
				it->lines[it->n++] = line;
		}
}

static struct ibv_pd *shared_pd;
static _Atomic bool has_begun, may_go_on;

static void hit(struct lines_written *lines)
{
	struct ibv_mr *mr;

	copy_all(lines);
	mr = reg(shared_pd, heap + 64, 100, RIGHTS);
	note_written(lines);
	pin_mr_deregister(mr);
	note_written(lines);
}

/* The first hit makes what the thread keeps. Nobody writes while another looks. */
static void *hit_later(void *lines)
{
	pin_mr_deregister(reg(shared_pd, heap, 64, RIGHTS));
	has_begun = true;
	while (!may_go_on)
		sched_yield();
	hit(lines);
	return NULL;
}

static __attribute__((unused)) void lines_in_common(void)
{
	struct lines_written own = {0}, others = {0};
	size_t n_common = 0;
	pthread_t other;
	struct ibv_mr *mr;

	shared_pd = new_pd();
	pthread_create(&other, NULL, hit_later, &others);
	while (!has_begun)
		sched_yield();
	mr = reg(shared_pd, heap, 64, RIGHTS);
	find_writable(pin_access_set_of(pin_domain_find(shared_pd), RIGHTS), mr);
	pin_mr_deregister(mr);
	own.copy = others.copy = malloc(n_writable_bytes);
	hit(&own);
	may_go_on = true;
	pthread_join(other, NULL);
	for (size_t i = 0; i < own.n; i++)
		n_common += has_line(&others, own.lines[i]);
	ok(own.n == 5 && others.n == 5 && !n_common,
	   "a hit writes to %zu cache lines, that of another thread to %zu: %zu in common",
	   own.n, others.n, n_common);
	free(own.copy);
	pin_domain_dealloc(shared_pd);
}

static void *give_up(void *mr)
{
	return (void *)(uintptr_t)pin_mr_deregister(mr);
}

/* Each thread has another lane, and none of them takes from the lists it fills. */
static void handed_over(void)
{
	struct ibv_pd *pd = new_pd();
	uintptr_t lowest = UINTPTR_MAX, highest = 0;
	bool good = true;

	for (int i = 0; i < 1000; i++) {
		struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS);
		pthread_t thread;
		void *error;

		lowest = (uintptr_t)mr < lowest ? (uintptr_t)mr : lowest;
		highest = (uintptr_t)mr > highest ? (uintptr_t)mr : highest;
		pthread_create(&thread, NULL, give_up, mr);
		pthread_join(thread, &error);
		good &= !error;
	}
	ok(good && highest - lowest < 32 * PIN_KIB,
	   "proxies freed by other threads are reused: %zu KiB",
	   (size_t)(highest - lowest) / PIN_KIB);
	ok(!pin_domain_dealloc(pd), "users are counted right across threads");
}

static int fail_to_deregister(struct ibv_mr *mr)
{
	return EIO;
}

/* How a program may notice that an adapter has gone, before it asks for the heap. */
static void register_foreign(struct ibv_pd *pd, struct ibv_mr *mr)
{
	char stack[64];

	fake_verbs.fail_next = 1;
	ok(!reg(pd, stack, sizeof stack, RIGHTS) && errno == EIO, "a registration fails");
}

static void deregister_foreign(struct ibv_pd *pd, struct ibv_mr *mr)
{
	ok(pin_mr_deregister_by(mr, fail_to_deregister) == EIO, "or a deregistration");
}

static void change_foreign(struct ibv_pd *pd, struct ibv_mr *mr)
{
	fake_verbs.rereg_errno = EIO;
	ok(pin_mr_reregister(mr, IBV_REREG_MR_CHANGE_TRANSLATION, pd, heap, 64, 0, NULL,
			     NULL) == IBV_REREG_MR_ERR_CMD &&
		   errno == EIO,
	   "or a change");
	fake_verbs.rereg_errno = 0;
}

static void register_other_heap(struct ibv_pd *pd, struct ibv_mr *mr)
{
	fake_verbs.fail_next = 100;
	ok(!reg(pd, heap + 5 * PIECE, 64, RIGHTS) && errno == EIO,
	   "or a registration of the heap");
}

static void evict_heap(struct ibv_pd *pd, struct ibv_mr *mr)
{
	const struct pin_ibverbs *verbs = pin_ibverbs();
	struct pin_ibverbs table = *verbs;

	table.dereg_mr = fail_to_deregister;
	pin_ibverbs_replace(&table);
	ok(!pin_evict_one(NULL, 0), "or memory regions cannot be evicted");
	pin_ibverbs_replace(verbs);
}

static void gone(void (*notice)(struct ibv_pd *pd, struct ibv_mr *mr))
{
	struct ibv_pd *pd = new_pd(), *other = new_pd_of(fake_context_elsewhere()), *next;
	struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS), *kept = reg(other, heap, 64, RIGHTS);
	struct ibv_mr *foreign = reg(pd, &mr, sizeof mr, RIGHTS), *idle;
	struct pin_mr_key keys;
	unsigned tried;

	pin_mr_deregister(reg(pd, heap + 2 * PIECE, 64, RIGHTS));
	pin_domain_enable(pd, RIGHTS);
	pin_mr_lookup(pd, heap, 64, RIGHTS, &keys);
	fake_verbs.fail_errno = EIO;
	notice(pd, foreign);
	tried = fake_verbs.tried;
	fake_verbs.fail_next = 100;
	ok(!reg(pd, heap, 64, RIGHTS) && errno == EIO &&
		   !reg(pd, heap + 2 * PIECE, 64, RIGHTS) && errno == EIO,
	   "then no memory region serves a request, and libibverbs says why");
	ok(pin_mr_lookup(pd, heap, 64, RIGHTS, &keys) == -ENOMEM, "look-ups find nothing");
	ok(fake_verbs.tried > tried + 2, "adapters are asked each time");
	idle = reg(other, heap, 64, RIGHTS);
	ok(reaches(idle) && idle->lkey == kept->lkey, "another adapter's is still found");
	ok(!pin_mr_deregister(mr), "proxies can be given back");
	fake_verbs.fail_next = 0;
	next = new_pd();
	mr = reg(next, heap, 64, RIGHTS);
	ok(mr && reaches(mr) && pin_proxy_of(mr), "a new PD is served");
	pin_mr_deregister(mr);
	pin_mr_deregister(foreign);
	pin_mr_deregister(kept);
	pin_mr_deregister(idle);
	pin_domain_dealloc(next);
	pin_domain_dealloc(other);
	nothing_is_left(pd);
}

static bool is_registered_ahead(struct ibv_pd *pd, void *addr, size_t length)
{
	struct pin_domain *domain = pin_domain_find(pd);
	unsigned made = fake_verbs.made;

	pin_keys_create_ahead(pin_access_set_of(domain, RIGHTS), pin_range_of(addr, length));
	return fake_verbs.made != made;
}

/* Other blocks were in its place, or in a part of it. */
static void cells(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *low = reg_pages(pd, 0, PIECE / PIN_PAGE / 4), *much, *next;

	pin_mr_deregister(reg(pd, heap + PIECE - 1, 2, RIGHTS));
	much = reg(pd, heap + PIECE / 2, PIN_PAGE, RIGHTS);
	ok(!is_registered_ahead(pd, heap, PIECE) && fake_verbs.live == 3,
	   "a cell is left as it is while more than a quarter of it is in use");
	pin_mr_deregister(much);
	ok(is_registered_ahead(pd, heap, PIECE) && fake_verbs.live == 2 &&
		   fake_verbs.registered == PIECE + PIECE / 4,
	   "then it replaces what is idle in it, or reaches into it");
	ok(reaches(low), "and what is in use stays");
	much = reg(pd, heap + PIECE - 1, 2, RIGHTS);
	ok(reaches(much) && fake_verbs.live == 3 && !is_registered_ahead(pd, heap, PIECE),
	   "a small request across its border does not replace it");
	next = reg(pd, heap + 2 * PIECE - PIN_PAGE, PIECE, RIGHTS);
	ok(is_registered_ahead(pd, heap + PIECE, PIECE) && reaches(next),
	   "what is in use in the next cell does not count in this one");
	pin_mr_deregister(much);
	much = reg(pd, heap + 2 * PIECE, 64, RIGHTS);
	ok(much->lkey == next->lkey, "and is still found there");
	pin_mr_deregister(next);
	pin_mr_deregister(low);
	pin_mr_deregister(much);
	nothing_is_left(pd);
}

/* Once: the library never forgets that. */
static void replaced(void)
{
	char *p = heap + (PIECES - 2) * PIECE;
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *used = reg(pd, p - PIECE, 3 * PIECE, RIGHTS), *mr;
	struct pin_segment segment = {pin_range_of(p - PIECE, 3 * PIECE), .piece = 4 * PIECE};
	struct pin_mr_key keys;

	pin_domain_enable(pd, RIGHTS);
	ok(reaches(used) && !pin_mr_lookup(pd, p, 64, RIGHTS, &keys),
	   "memory is registered and looked up");
	fake_replace(p + 5, 1);
	ok(reaches(used), "a memory region in use stays when its pages are replaced");
	ok(pin_mr_lookup(pd, p, 64, RIGHTS, &keys) == -ENOENT,
	   "look-ups no longer find its keys");
	mr = reg(pd, p - 10, 20, RIGHTS);
	ok(reaches(mr) && mr->length == 20 && pin_state_requests(PIN_REPLACED) == 1,
	   "later requests for it go to libibverbs");
	pin_mr_deregister(mr);
	mr = reg(pd, p + PIECE, 64, RIGHTS);
	ok(reaches(mr) && mr->length == 64 && mr->lkey != used->lkey && fake_verbs.live == 2,
	   "memory next to it gets another memory region");
	ok(!is_registered_ahead(pd, p, PIECE) && is_registered_ahead(pd, heap, PIECE),
	   "it is not registered ahead, even if that was about to begin");
	pin_mr_deregister(used);
	pin_mr_deregister(mr);
	pin_domain_disarm(pd);
	pin_segments_add(&segment);
	segment.is_ready = true;
	mr = reg(pd, p - PIECE, 64, RIGHTS);
	ok(reaches(mr) && fake_verbs.registered == PIN_PAGE,
	   "nor with a request for another part of its piece of a segment");
	pin_segments_remove(&segment);
	pin_mr_deregister(mr);
	nothing_is_left(pd);
}

/* --- what is asked once, in processes of their own --------------------------------- */

static bool guarded_before(void)
{
	struct ibv_pd *pd = new_pd();

	fake_verbs.fork_status = IBV_FORK_ENABLED;
	return reg(pd, heap, 64, RIGHTS) && pin_state_requests(PIN_FORK_GUARD) == 1;
}

/* Before the kernel's RDMA layer is loaded, nobody knows whether the kernel copies. */
static bool initialized_early(void)
{
	struct ibv_pd *pd = new_pd();

	fake_verbs.fork_status = IBV_FORK_DISABLED;
	if (pin_fork_init() || fake_verbs.fork_inits != 1 || pin_state_off())
		return false;
	fake_verbs.fork_status = IBV_FORK_UNNEEDED;
	return reg(pd, heap, 64, RIGHTS) && pin_state_requests(PIN_SERVED) == 1;
}

static struct ibv_pd *parents;
static struct ibv_mr *parents_mr;

static bool has_no_keys(void)
{
	unsigned live = fake_verbs.live;
	struct pin_mr_key keys;

	return !pin_mr_deregister(parents_mr) && fake_verbs.live == live &&
	       look_up(parents, heap, 64, &keys) == -ENOMEM && reg(parents, heap, 64, RIGHTS) &&
	       fake_verbs.live == live + 1 && pin_state_requests(PIN_CHILD);
}

static void forks(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS);
	struct pin_mr_key keys;

	ok(!pin_fork_init() && !fake_verbs.fork_inits,
	   "ibv_fork_init does nothing where the kernel copies");
	ok(pin_fork_kernel_copies(), "pages are not hidden from children");
	ok(!look_up(pd, heap, 64, &keys), "the parent looks up keys");
	parents = pd;
	parents_mr = mr;
	ok(in_child(has_no_keys),
	   "a child has no keys, deregisters nothing, and uses libibverbs");
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
	fake_verbs.fork_status = IBV_FORK_DISABLED;
	pd = new_pd();
	ok(!pin_fork_init() && fake_verbs.fork_inits == 1,
	   "on other kernels ibv_fork_init calls the real one");
	mr = reg(pd, heap, 64, RIGHTS);
	ok(mr && pin_state_requests(PIN_FORK_GUARD) == 1 && mr->length == 64,
	   "then the heap is not registered");
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
}

int main(void)
{
	struct pin_span *span = NULL;

	if (!lazy_pool())
		return 99;
	fake_kernel.keeps_memory = true;
	heap = grow(&span, PIECES * PIECE);
	heap_end = heap + PIECES * PIECE;
	fake_touch(heap, PIECES * PIECE);
	ok(in_child(guarded_before), "if fork protection is on, nothing is registered ahead");
	ok(in_child(initialized_early),
	   "ibv_fork_init without the kernel's RDMA layer does not stop anything");
	lanes();
#ifndef __SANITIZE_ADDRESS__ /* which has variables apart */
	lines_in_common();
#endif
	served();
	wider();
	much_larger();
	narrow_again();
	cells();
	passed();
	unseen();
	stale();
	teardown();
	changes();
	looked_up(heap, heap + PIECE);
	handed_over();
	gone(register_foreign);
	gone(deregister_foreign);
	gone(change_foreign);
	gone(register_other_heap);
	gone(evict_heap);
	replaced();
	forks();
	return done_testing();
}
