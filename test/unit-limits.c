/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Exhausted resources: locked memory, the adapter's memory regions, and any other reason for
 * which a call can fail. Idle memory regions are evicted, those in use stay, and no request
 * fails that would have succeeded without the library. One case: unit-limits NAME.
 */
#include <config.h>

#include "regpool/evict.h"
#include "regpool/proxy.h"
#include "regpool/state.h"
#include "test/beside.h"
#include "test/cases.h"
#include "test/fake-kernel.h"
#include "test/spans.h"

#include <errno.h>

#define PIECES	16
#define THREADS 8

/* The linker puts this in place of the library's (--wrap): all that is pinned. */
static size_t all_pinned;

size_t __wrap_pin_os_status(const char *name)
{
	return all_pinned;
}

static void set_pinned(char *p, size_t n, bool is_on)
{
	all_pinned = (size_t)(p - heap);
}

static char *piece(size_t i)
{
	return heap + i * PIECE;
}

/* A domain for each, so that each has memory regions of its own over the same pages. */
static void *share_pages(void *number)
{
	struct ibv_pd *pd = new_pd();
	uintptr_t refused = 0;

	for (size_t i = 0; i < 20 * PIECES; i++) {
		uint64_t served = fake_verbs.tried;
		struct ibv_mr *mr = reg(pd, piece(i % 3), PIECE + PIN_PAGE * (1 + i % 9),
					RIGHTS);

		refused += !reaches(mr) || !pin_proxy_of(mr);
		pin_mr_deregister(mr);
		/* Of one that does not fit nothing stays counted. */
		if (fake_verbs.tried != served)
			pin_mr_deregister(reg(pd, piece(4), 8 * PIECE, RIGHTS));
	}
	pin_domain_dealloc(pd);
	return (void *)refused;
}

static void shared_by_threads(void)
{
	must(!in_threads(THREADS, share_pages), "some are refused");
}

static void unknown_size(void)
{
	struct pin_retry retry = pin_retry_begin(fake_context(), 0);

	must(!pin_retry_evict(&retry, EINVAL), "a call that is wrong evicts");
	case_do("reg=16g memlock:1p");
	must(pin_retry_evict(&retry, ENOMEM) && errno == ENOMEM, "a call of unknown size");
	case_do("reg=15g memlock:none");
	retry = pin_retry_begin(fake_context(), 0);
	for (size_t left = 15, n = 1; left; left -= n < left ? n : left, n *= 2)
		must(pin_retry_evict(&retry, ENOMEM), "and again");
	must(!pin_retry_evict(&retry, ENOMEM), "nothing is idle");
	must(++pin_state.destroyed && pin_retry_evict(&retry, ENOMEM), "others have left room");
	case_do("reg=0");
}

#define EACH (PIECES / THREADS * (PIECE / PIN_MIB))

static pthread_barrier_t storm_begins;
static _Atomic unsigned storm_refused;
static struct ibv_mr *storm[THREADS][EACH];

/* Memory of the program's own. */
static struct ibv_mr *reg_own(void)
{
	return reg(case_pd(), storm, PIN_MIB, RIGHTS);
}

static void *register_each(void *number)
{
	struct ibv_mr **mine = storm[(uintptr_t)number % THREADS];

	pthread_barrier_wait(&storm_begins);
	for (size_t i = 1; i < EACH; i++)
		storm_refused += !(mine[i] = reg_own());
	return NULL;
}

/* Others may take what a thread has evicted. Here all that there is room for is needed. */
static void hidden_limit_for_threads(void)
{
	pthread_barrier_init(&storm_begins, NULL, THREADS);
	for (int round = 0; round < 50; round++) {
		for (size_t i = 0; i < THREADS; i++)
			storm[i][0] = reg_own();
		case_do("idle:12,1g,0,1g limit:16g");
		in_threads(THREADS, register_each);
		for (size_t i = 0; i < THREADS * EACH; i++)
			if (storm[i / EACH][i % EACH])
				pin_mr_deregister(storm[i / EACH][i % EACH]);
		case_do("limit:none");
	}
	must(!storm_refused, "%u are refused", storm_refused);
}

static void wait_a_second(void)
{
	usleep(1100000);
}

static const struct case_word words[] = {{"pins:", set_pinned}, {NULL}};

/* The errno values are those of real adapters, see regpool/ibverbs.h. */
#define FULL(error) \
	"full:" error " zero idle:16,1g,0,64 idle:16,1g,16,64 idle:16,1g,32,64 evicted>0 "

/* Only pages that could not be pinned stay out of larger memory regions. */
#define FAILS(error, then)                                                             \
	{                                                                              \
		"a request has its own pages if more fails with " error                \
		", and so have others",                                                \
			".2p,2p fail:1," error " a=3p,2p bytes=4p b=1p,2p bytes=" then \
	}

static const struct test_case cases[] = {
	{"the limit is 3/4 of the machine's memory", "most:auto ram:80g share=60g"},
	{"or of the control group's limit", "most:auto ram:80g cgroup:40g share=30g"},
	{"divided by the ranks on the node",
	 "env:SLURM_TASKS_PER_NODE=2(x3),4 most:auto ram:80g share=15g"},
	{"at most this much is pinned, and one line names it",
	 "ram:80g cgroup:8g most:auto hold:16,1g,0,1g?any served=6 reg<6g",
	 "12.0 MiB (3/4 of RAM or cgroup, |PINALLOC_MAX_PINNED sets another"},
	{"a limit that changes is seen",
	 "ram:80g cgroup:8g most:auto share=6g cgroup:16g call share=12g", NULL, wait_a_second},
	{"for PINALLOC_MAX_PINNED a page counts once",
	 "+Q most:3g a=0,2g Q:b=1g,2g reg=4g -b evict reg=2g Q:b=1g,2g+1?unpinned Q:c=1g,2g"},
	{"it counts twice as locked memory, and one line names that limit",
	 "+Q a=0,2g memlock:7g Q:b=0,2g?unpinned", "7.0 MiB of ulimit -l"},
	{"what the program has locked itself is left of that limit first",
	 "memlock:16g pins:10g a=0,3g pins:13g b=4g,1p?unpinned pins:30g c=5g,1p?unpinned"},
	{"domains of several threads pin the same pages, each of which counts once",
	 "most:5g call reg=0 most:2g zero hold:16,1g,0,1g?any served=2", NULL,
	 shared_by_threads},
	{"if what it overlaps does not fit with it, the requested range does",
	 "most:2p .9g,2p a=9g+1p,2p reg=2p"},
	{"an idle memory region is evicted where memory that is locked is limited",
	 ".0,1g limit:1g+1m memlock:8g a=1g,1g evicted=1 live=1 b=0,64 live=2 -b -a a=f,3m "
	 "live=1"},
	{"eviction keeps PINALLOC_MAX_PINNED, and none is in vain",
	 ".0,1g most:1g-1 a=1g,1g?unpinned evicted=0 -a most:1g .0,1g a=1g,1g live=1 reg=1g "
	 "most:2g .0,64 zero .2g,2g?unpinned evicted=0 live=2"},
	{"above the share an idle one is evicted for memory that is not heap",
	 "a=0,1g .1g,1g most:256p limit:2g+1p memlock:4g b=f,2p"},
	{"if the adapter is full, an idle memory region is evicted; those in use stay",
	 "mrs:4 " FULL("ENOMEM") FULL("EAGAIN") FULL("ENOSPC")
		 FULL("EOVERFLOW") ".f,8 hold:4,1g,0,64 a=4g,64?unpinned!EOVERFLOW"},
	{"what one adapter has no room for goes by what it has itself, or by locked memory",
	 "+R -R +Q1 Q:.0,64 fail:1,ENOSPC .1g,64?unpinned fail:1,ENOMEM .2g,64?unpinned "
	 "Qreg=1p "
	 ".3g,64 fail:1,ENOSPC .4g,64 fail:1,ENOMEM .5g,64 Qreg=1p memlock:16g fail:1,ENOMEM "
	 ".6g,64 Qreg=0"},
	{"at a limit that is not told, as many are evicted as a call needs, and no more",
	 "limit:16g idle:16,1g,0,1g a=f,256p evicted=1 b=f,3g evicted=4 c=0,1g evicted=5 "
	 "hold:11,0,f,1g d=f,1g!ENOMEM bytes=16g-256p zero d=f,1g!ENOMEM tried=1"},
	{"a call of unknown size evicts a granule, and twice as much each time",
	 "idle:16,1g,0,1g limit:16g a=f,6g/ld reg=9g -a idle:16,1g,0,1g call", NULL,
	 unknown_size},
	{"threads get all there is room for", "call", NULL, hidden_limit_for_threads},
	{"a range too large for the adapter is libibverbs', but not in another PD",
	 "mrsize:1g-1 +Q mrsize:none Q:a=0,1g?unpinned tried=1 +R R:b=0,1g",
	 "the adapter limits memory regions to "},
	{"for more than may be locked nothing is evicted, and for less what there is",
	 "memlock:64g limit:64g idle:16,1g,0,1g a=f,66g!ENOMEM live=16 a=f,60g"},
	{"if the adapter is full a small one makes room for a large one",
	 "idle:4,1g,0,64 mrs:4 a=f,60g -a .0,64 a=f,1152921504606846976/lrwd"},
	{"idle ones are evicted for an MR of other memory that grows",
	 "a=f,1g memlock:64g limit:64g idle:16,1g,0,1g b=0,1g a>f,55g a>f,64g!ENOMEM live=2"},
	FAILS("EINVAL", "5p"),
	FAILS("EACCES", "5p"),
	FAILS("EFAULT", "6p"),
	{"of a page that is about to be replaced nothing is said before it is requested",
	 "a=1g,64 fail:1,EFAULT ahead:0,1g! failing=0", ""},
	{"a page that may be read, but not pinned, counts as protected, and one line says so",
	 "fail:1,EFAULT a=0,64?protected", "a page there is protected"},
	{"what does not fit goes to libibverbs at once",
	 "most:1p-1 a=0,1g?unpinned b=1,64?unpinned c=0,2g?unpinned tried=3"},
	{"a memory region that cannot be deregistered still counts, and serves",
	 ".0,1g deny:EBUSY evict! live=1 reg=1g deny:0 a=0,64 made=1 a>100,7 deny:EBUSY "
	 "-a!EBUSY deny:0"},
	{"where registration is off, no more keys are looked up",
	 "status:0 A=0,64 fork_init A=1g,64!ENOMEM"},
	{"if one cannot be deregistered, another is evicted, to the last but that one",
	 "a=0,64 deny:a -a idle:2,1g,1g,64 mrs:3 b=f,8 c=3g,64 reg=2p evict! live=3"},
	{"of many that are idle so many go as a request needs",
	 "idle:1000,2p,0,64 most:1000p a=8g,600p reg=1000p -a evict:401 evict! reg=0"},
	{"under a limit on locked memory small buffers have their own pages",
	 "memlock:64g limit:64g hold:16,1g,0,64 bytes=16p a=f,63g"},
	{"if the limit is lower when the program registers, idle memory regions go",
	 "memlock:32g idle:16,1g,0,1g reg=16g memlock:10g a=f,8 reg<5g reg>2g-1"},
};

int main(int argc, char **argv)
{
	if (!make_case_heap(PIECES * PIECE))
		return 99;
	more_words = words;
	run_cases(cases, PIN_ARRAY_SIZE(cases), argv);
	return done_testing();
}
