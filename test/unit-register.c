/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations, with a libibverbs that keeps the kernel's rules and fails on demand: which are
 * served, by which memory region, with which rights, and what threads share. One case:
 * unit-register NAME.
 */
#include <config.h>

#include "regpool/evict.h"
#include "regpool/keys.h"
#include "regpool/proxy.h"
#include "test/beside.h"
#include "test/cases.h"
#include "test/fake-kernel.h"
#include "test/spans.h"

#include <errno.h>
#include <sched.h>

#define PIECES 16

/* --- what threads share ------------------------------------------------------------- */

static _Atomic unsigned seen[PIN_LANES];

static void *note_lane(void *number)
{
	seen[pin_lane()]++;
	return NULL;
}

/* Before any other thread registers. */
static void lanes(void)
{
	unsigned alone = 0;

	in_threads(PIN_LANES, note_lane);
	for (unsigned i = 0; i < PIN_LANES; i++)
		alone += seen[i] == 1;
	ok(alone == PIN_LANES && pin_lanes() == PIN_LANES, "%u threads have lanes of their own",
	   alone);
	in_threads(1, note_lane);
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

/* What was in it, and which of its lines were written since, by whom: a bit each. */
enum { BY_THIS = 1, BY_OTHER = 2 };
static char *copy, *written;

static void add_writable(void *start, size_t n_bytes)
{
	writable[n_writable].start = start;
	writable[n_writable++].n_bytes = n_bytes;
	n_writable_bytes += n_bytes;
}

static void find_writable(struct pin_access_set *set, struct ibv_mr *mr)
{
	const struct pin_table *tables[] = {&set->covering, &set->in_part, &set->entry_table,
					    &set->region_table, &set->users};
	uintptr_t data = PIN_ALIGN_DOWN((uintptr_t)__data_start, LINE);

	add_writable((void *)data, PIN_ALIGN_UP((uintptr_t)_end, LINE) - data);
	for (size_t i = 0; i < PIN_ARRAY_SIZE(tables); i++)
		add_writable(tables[i]->base, tables[i]->committed * tables[i]->element_size);
	add_writable(set->domain->access_sets, PIN_ACCESS_SETS * sizeof *set);
	add_writable((void *)PIN_ALIGN_DOWN((uintptr_t)mr, PIN_PAGE), PIN_PAGE); /* proxies */
}

static void copy_all(void)
{
	char *to = copy;

	for (size_t i = 0; i < n_writable; to += writable[i++].n_bytes)
		memcpy(to, writable[i].start, writable[i].n_bytes);
}

static void note_written(char by)
{
	const char *before = copy;
	size_t line = 0;

	for (size_t i = 0; i < n_writable; before += writable[i++].n_bytes)
		for (size_t at = 0; at < writable[i].n_bytes; at += LINE, line++)
			if (memcmp(before + at, writable[i].start + at, LINE) != 0)
				written[line] |= by;
}

static struct ibv_pd *shared_pd;
static _Atomic bool has_begun, may_go_on;

static void hit(char by)
{
	struct ibv_mr *mr;

	copy_all();
	mr = reg(shared_pd, heap + 64, 100, RIGHTS);
	note_written(by);
	pin_mr_deregister(mr);
	note_written(by);
}

/* The first hit makes what the thread keeps. Nobody writes while another looks. */
static void *hit_later(void *unused)
{
	pin_mr_deregister(reg(shared_pd, heap, 64, RIGHTS));
	has_begun = true;
	while (!may_go_on)
		sched_yield();
	hit(BY_OTHER);
	return unused;
}

static __attribute__((unused)) void lines_in_common(void)
{
	size_t n_own = 0, n_others = 0, n_common = 0;
	pthread_t other;
	struct ibv_mr *mr;

	shared_pd = new_pd();
	pthread_create(&other, NULL, hit_later, NULL);
	while (!has_begun)
		sched_yield();
	mr = reg(shared_pd, heap, 64, RIGHTS);
	find_writable(pin_access_set_of(pin_domain_find(shared_pd), RIGHTS), mr);
	pin_mr_deregister(mr);
	copy = malloc(n_writable_bytes);
	written = calloc(1, n_writable_bytes / LINE + n_writable);
	hit(BY_THIS);
	may_go_on = true;
	pthread_join(other, NULL);
	for (size_t i = 0; i < n_writable_bytes / LINE + n_writable; i++) {
		n_own += written[i] & BY_THIS;
		n_others += written[i] / BY_OTHER;
		n_common += written[i] == (BY_THIS | BY_OTHER);
	}
	ok(n_own == 5 && n_others == 5 && !n_common,
	   "a hit writes to %zu cache lines, that of another thread to %zu: %zu in common",
	   n_own, n_others, n_common);
	free(copy);
	free(written);
	pin_domain_dealloc(shared_pd);
}

static struct ibv_mr *handed;

static void *give_up(void *number)
{
	return (void *)(uintptr_t)pin_mr_deregister(handed);
}

/* Each thread has another lane, and none of them takes from the lists it fills. */
static void handed_over(void)
{
	uintptr_t lowest = UINTPTR_MAX, highest = 0;

	for (int i = 0; i < 1000; i++) {
		handed = reg(case_pd(), heap, 64, RIGHTS);
		lowest = (uintptr_t)handed < lowest ? (uintptr_t)handed : lowest;
		highest = (uintptr_t)handed > highest ? (uintptr_t)handed : highest;
		must(!in_threads(1, give_up), "one is not deregistered");
	}
	must(highest - lowest < 32 * PIN_KIB, "proxies have %zu KiB",
	     (size_t)(highest - lowest) / PIN_KIB);
}

/* --- fork() --------------------------------------------------------------------------- */

static struct ibv_mr *parents_mr;

/* The registration is the parent's. */
static bool has_no_keys(void)
{
	struct ibv_pd *pd = case_pd();
	unsigned live = fake_verbs.live;
	struct pin_mr_key keys;

	return !pin_mr_deregister(parents_mr) && fake_verbs.live == live &&
	       look_up(pd, heap, 64, &keys) == -ENOMEM && reg(pd, heap, 64, RIGHTS) &&
	       fake_verbs.live == live + 1 && pin_state_requests(PIN_CHILD) == 1;
}

static bool gives_back_changed(void)
{
	unsigned live = fake_verbs.live;

	return !pin_mr_deregister(parents_mr) && fake_verbs.live == live;
}

static void have_child(void)
{
	struct pin_mr_key keys;

	parents_mr = reg(case_pd(), heap, 64, RIGHTS);
	must(!look_up(case_pd(), heap, 64, &keys) && in_child(has_no_keys), "in a child");
	must(!pin_mr_reregister(parents_mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1, NULL,
				NULL) &&
		     in_child(gives_back_changed),
	     "in a child, of a registration that was changed");
	pin_mr_deregister(parents_mr);
}

static bool is_child(void)
{
	return pin_state_off() == PIN_CHILD;
}

/* Small ones, of which 128 or 32 are in each granule of the heap, and two that are not. */
static void fork_idle(size_t apart)
{
	for (size_t at = PIN_GRANULE; at < pin_span_bytes(); at += apart)
		pin_mr_deregister(reg(case_pd(), heap + at, 64, RIGHTS));
	case_do(".0,4p .4p,5p a=9p,5p");
	must(in_child(is_child), "there is a child");
}

static void fork_many(void)
{
	fork_idle(4 * PIN_PAGE);
}

static void fork_few(void)
{
	fork_idle(16 * PIN_PAGE);
}

/* --- registrations that take time, and eviction --------------------------------------- */

static void register_wider(void)
{
	fake_verbs.on_call = NULL;
	case_do("ahead:0,1g");
}

static void meanwhile(void)
{
	case_do(".2g,64");
	fake_verbs.on_call = register_wider;
	case_do("a=0,64 live=2 bytes=1g+1p");
}

static void go_round(void)
{
	pin_evict_clock = UINT32_MAX - 1;
	case_do(".0,64 .2g,64 evict zero .2g,64 made=0 .0,64 .4g,64 .2g,64 evict zero .2g,64 "
		".4g,64 made=0");
}

/* --- cases ---------------------------------------------------------------------------- */

/* All sets of rights that there are, and those that verbs refuse. */
#define EACH_SHORT(X)	X("-") X("r") X("l") X("lr") X("lw") X("la") X("o") X("ro") X("lo")
#define EACH_SET(X)	EACH_SHORT(X) X("lrw") X("lra") X("lwa") X("lro") EACH_LONG(X)
#define EACH_LONG(X)	X("lrwa") X("lwo") X("lao") X("lrwo") X("lrao") X("lwao") X("lrwao")
#define EACH_REFUSED(X) X("w") X("a") X("rw") X("ra") X("wa") X("rwa")
#define TWICE(set)	"a=0,100/" set " b=100,100/" set " a~b -a -b "
#define CHANGED(set)	"a>/" set " "
#define LOOKED_UP(set)	"A=0,64/" set " "
#define REFUSED(set)	"a=0,64/" set "?unsound!EINVAL enable:P/" set "!EINVAL "
#define NOT_FOUND(set)	"A=0,64/" set "!EINVAL "

/* How a program may notice that an adapter has gone, before it asks for the heap. */
#define GONE(name, notice)                                                           \
	{                                                                            \
		name, "+Q1 a=0,64 Q:b=0,64 c=f,8 .2g,64 enable:P A=0,64/lrw " notice \
		      " zero fail:100,EIO d=0,64?unpinned!EIO d=2g,64?unpinned!EIO " \
		      "A=0,64/lrw!ENOMEM "                                           \
		      "tried>2 Q:e=0,64 e~b -a fail:0,0 +R R:f=0,64"                 \
	}

static const struct test_case cases[] = {
	{"two requests share one memory region, which stays until the PD goes",
	 "a=100,5000 b=5000,3192 a~b -a -b made=1 live=1 -a!EINVAL -P live=0 +P"},
	{"over a border comes another memory region, and the wider is found",
	 "a=0,4p b=6p,4p live=2 a#b -b c=3p,4p live=2 bytes=11p reg=11p d=0,10p e=3p,1p e~d "
	 "d#c d#a -a -c f=3g,64 live=2"},
	{"a request takes nothing of a memory region that is much larger",
	 ".0,64p .63p,3p live=2 bytes=67p .60p,10p live=1 bytes=70p"},
	{"nor does one of a segment take more than its piece",
	 ".2g,2g segment:3g,4g,4g a=4g-1p,2p bytes=6g"},
	{"what is registered within a wider one meanwhile goes again", "call", NULL, meanwhile},
	{"what was used least recently is evicted, also once the clock has gone round", "call",
	 NULL, go_round},
	{"more memory regions than are counted may be evicted for one request",
	 "most:1100p idle:1100,2p,0,64 a=8g,1040p live<100"},
	{"narrower memory regions serve again when a wide one has gone",
	 "a=0,64 .0,2g made=2 evict live=1 b=4032,64 b~a made=2"},
	{"gaps are not closed, and ranges that creep upwards leave little more than the heap",
	 "idle:5,3g,0,64 live=5 disarm:P idle:8,1g,1,8g-2 reg<20g"},
	{"libibverbs gets what is not heap, and what is more than a range of it",
	 ".f,64 .0,4096@?iova a=0,4096/lrwm?rights -a .16g-10,20?split live=0"},
	{"a PD whose allocation was not seen is libibverbs'",
	 "+Q? Q:a=0,64?unseen Q:A=0,64!ENOMEM"},
	{"a freed proxy is invalid while a request goes to libibverbs",
	 "a=0,64 -a b=0,64/lrwm?rights -a!EINVAL"},
	{"a PD with registrations is busy, and those of a closed device can be given back",
	 "a=0,64 b=f,8 -P!EBUSY live=2 -a -P!EBUSY a=0,64 -a -b -P live=0 +P c=0,64 a#c close "
	 "A=0,64!ENOMEM "
	 "live=0 +Q Q:b=0,64 -Q!EBUSY -b -Q -c"},
	{"what the adapter makes of a change stands for the proxy, or nothing changes",
	 "+Q a=0,64 rereg:EOPNOTSUPP a>100,7!EOPNOTSUPP live=1 rereg:0 a>100,7 a>Q -P a>f,64 "
	 "a>/l -a -Q live=0 +P"},
	{"keys are found, to the byte, and are never evicted",
	 "A=5,100 B=0,1 A~B B=0,0 B~A C=1g,0 D=1g,1 C~D disarm:P A=0,1 limit:1p C=1g,4!ENOMEM "
	 "a=1g,4096?unpinned!ENOMEM B=0,1 A~B disarm:P live=0 C=1g,4 disarm:P disarm:P!ENOENT"},
	{"nor do they keep others, which look-ups do not find",
	 "A=0,64/lrw B=2p,64/lrw C=4p,64/lrw D=6p,64/lrw E=8p,64/lrw a=10p,64 ahead:0,1g "
	 "live=7 -a "
	 ".2g,64 live=7"},
	{"what is in use when a PD is disabled can be evicted later",
	 "a=0,64 A=0,64/lrw disarm:P -a evict live=0"},
	GONE("an adapter has gone: a registration fails", "fail:1,EIO d=f,64!EIO"),
	GONE("or a deregistration", "deny:EIO -c!EIO deny:0"),
	GONE("or a change", "rereg:EIO c>0,64!EIO rereg:0"),
	GONE("or a registration of the heap", "fail:100,EIO d=5g,64?unpinned!EIO"),
	GONE("or memory regions cannot be evicted", "deny:EIO evict! deny:0"),
	{"a cell is registered ahead in place of what is idle, of which it has much",
	 "a=0,128p .1g-1,2 .256p,1p live=3 .1g-1p,9p live=3 bytes=138p ahead:0,1g live=3 "
	 "bytes=1g+137p "
	 "b=1g-1,2 live=3 ahead:0,1g! c=2g-1p,1g ahead:1g,1g -b b=2g,64 b~c"},
	{"replaced pages are libibverbs', and what is next to them is not",
	 "a=13g,3g enable:P A=14g,64/lrw replace:14g+5,1 B=14g,64/lrw!ENOENT "
	 "b=14g-10,20?replaced -b b=15g,64 b#a live=2 ahead:14g,1g! ahead:0,1g -a -b disarm:P "
	 "segment:13g,3g,4g b=13g,64 bytes=1p"},
	{"before fork() what is idle is deregistered", "call live=1", NULL, fork_few},
	{"but for small ones, if there are very many",
	 "call live>1 zero .0,4p made=0 .4p,5p made=1", NULL, fork_many},
	{"and where the kernel copies pinned pages", "status:0 call live=1", NULL, fork_many},
	{"if fork protection is on, nothing is registered ahead", "status:1 a=0,64?guard"},
	{"ibv_fork_init without the kernel's RDMA layer does not stop anything",
	 "status:0 fork_init inits=1 off=0 status:2 a=0,64"},
	{"where the kernel copies, ibv_fork_init does nothing, and pages are not hidden",
	 "a=0,64 fork_init inits=0 copies=1"},
	{"on other kernels ibv_fork_init calls the real one, and the heap is not registered",
	 "status:0 a=0,64 -a fork_init inits=1 a=0,64?guard copies=0"},
	{"a child has no keys, deregisters nothing, and uses libibverbs", "call", NULL,
	 have_child},

	{"each set of rights has one memory region, with exactly these",
	 EACH_SET(TWICE) "made=20 reg=20p"},
	{"rights that verbs refuse are refused by libibverbs, and nothing is said",
	 EACH_REFUSED(REFUSED) "live=0", ""},
	{"a changed registration has exactly the new rights, or all of the old ones",
	 "a=0,64/lrwa " EACH_SET(CHANGED) "a>/w!EINVAL b=100,64/lr a>64,64"},
	{"keys are looked up with exactly the rights that are asked for",
	 "a=0,64/l " EACH_SET(LOOKED_UP) EACH_REFUSED(NOT_FOUND) "A=0,64/lm!EACCES"},
	{"beyond PINALLOC_ACCESS keys are libibverbs' own, for the range",
	 "access:l a=1000,64/l reg=1p b=100,64/lrwa?rights b| a>/lrw a| -b "
	 "enable:P/lr!EACCES A=0,64/lr!EACCES A=0,64/l"},
	{"a PD that is enabled has no more rights until it is disabled",
	 "a=0,64/l disarm:P -a disarm:P enable:P/lr enable:P/lw!EEXIST "
	 "A=0,64/lr B=0,64/r C=0,64/lro D=0,64/lw!EACCES a=0,64/lw?rights -a a=0,64/l disarm:P "
	 "A=0,64/lrwa"},
	{"where keys have to be unique, those of buffers in use are",
	 "type:7 a=0,64 b=64,64?shared c=128,64?shared a#b b#c -a d=300,64"},
	{"a length beyond all memory takes no time", ".0,1152921504606846976?split"},

	{"proxies freed by other threads are reused", "call", NULL, handed_over},
};

int main(int argc, char **argv)
{
	if (!make_case_heap(PIECES * PIECE))
		return 99;
	run_cases(cases, PIN_ARRAY_SIZE(cases), argv);
	lanes();
#ifndef __SANITIZE_ADDRESS__ /* which has variables apart */
	lines_in_common();
#endif
	return done_testing();
}
