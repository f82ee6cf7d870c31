/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The thread that registers ahead of requests: it registers resident memory and nothing else,
 * and sleeps when there is nothing to do. Uses a simulated kernel. One case: unit-ahead NAME.
 */
#include <config.h>

#include "allocator/os.h"
#include "regpool/ahead.h"
#include "regpool/evict.h"
#include "regpool/keys.h"
#include "regpool/state.h"
#include "test/beside.h"
#include "test/blocks.h"
#include "test/cases.h"
#include "test/fake-kernel.h"
#include "test/spans.h"

#include <errno.h>

#define CELL	(256 * PIN_MIB)
#define HOUR_NS 3600000000000ull

/* The linker puts these in front of the library's own. */
uint64_t __real_pin_os_time_ns(clockid_t clock);
void __real_pin_os_sleep_ms(uint64_t ms);
void __real_pin_os_wait(_Atomic uint32_t *word, uint32_t seen);
void __real_pin_os_wait_ms(_Atomic uint32_t *word, uint32_t seen, uint64_t ms);
int __real_pin_thread_start(bool *runs, void *(*run)(void *), void *arg, const char *name);

static _Atomic uint64_t stands_at_ns; /* 0: time goes on, and pauses are short */
static _Atomic uint64_t pause_ms;     /* how long the thread waits at most */
static _Atomic bool ends, has_ended;
static _Atomic unsigned n_waits;

uint64_t __wrap_pin_os_time_ns(clockid_t clock)
{
	return stands_at_ns && clock == CLOCK_MONOTONIC ? stands_at_ns
							: __real_pin_os_time_ns(clock);
}

void __wrap_pin_os_wait_ms(_Atomic uint32_t *word, uint32_t seen, uint64_t ms)
{
	pause_ms = ms;
	n_waits++;
	for (has_ended = ends; has_ended;)
		pause();
	__real_pin_os_wait_ms(word, seen,
			      ms > 10 && ms < UINT64_MAX && !stands_at_ns ? 10 : ms);
}

/* By a clock that is set a look may have taken any time, and the rest after it as well. */
void __wrap_pin_os_sleep_ms(uint64_t ms)
{
	__real_pin_os_sleep_ms(ms < 10 ? ms : 10);
}

static bool may_start = true;

static unsigned n_started; /* threads of the library */

int __wrap_pin_thread_start(bool *runs, void *(*run)(void *), void *arg, const char *name)
{
	int error = may_start ? __real_pin_thread_start(runs, run, arg, name) : EAGAIN;

	n_started = *runs;
	return error;
}

static struct pin_span *span;

/* In one memory region. */
static bool has_keys(const void *addr, size_t n_bytes)
{
	struct pin_access_set *set = NULL;

	while ((set = pin_access_set_next(NULL, set))) {
		uint32_t numbers[] = {pin_keys_covering(set, addr),
				      pin_keys_covering_page(set, addr)};

		for (size_t i = 0; i < PIN_ARRAY_SIZE(numbers); i++)
			if (numbers[i] &&
			    pin_entry_covers(&set->entries[numbers[i]], addr, n_bytes))
				return true;
	}
	return false;
}

static bool is_pinned(const void *addr)
{
	return has_keys(addr, PIN_PAGE);
}

/* The thread has made a pass over the whole heap since, and waits. */
static void let_it_finish(char *p, size_t n, bool is_on)
{
	for (int i = 0; i < 2; i++) {
		unsigned waits = n_waits;

		pin_state_changed();
		must(soon(n_waits != waits), "the thread does not wait");
	}
}

/* By the thread's clock, which then stands at a time that is later than any before. */
static void let_an_hour_pass(char *p, size_t n, bool is_on)
{
	static uint64_t hours;

	stands_at_ns = __real_pin_os_time_ns(CLOCK_MONOTONIC) + ++hours * HOUR_NS;
	let_it_finish(p, 0, true);
}

/*
 * And it goes on. In each there is one look at least: new memory is seen, it is quiet, what has
 * gaps is the same as before, and is mended.
 */
static void let_hours_pass(char *p, size_t n, bool is_on)
{
	for (int i = 0; i < 4; i++)
		let_an_hour_pass(p, 0, true);
	stands_at_ns = 0;
}

/* It has looked once since, from the beginning. */
static void let_it_look(char *p, size_t n, bool is_on)
{
	for (int i = 0; i < 2; i++) {
		unsigned looks = fake_kernel.looks;

		pin_state_changed();
		must(soon(fake_kernel.looks != looks), "the thread does not look");
	}
}

/* --- fork() --------------------------------------------------------------------------- */

static _Atomic unsigned live_at_fork;
static _Atomic size_t bytes_at_fork;

static _Atomic pthread_t main_thread;
static _Atomic bool is_held_up, may_go_on;

void __wrap_pin_os_wait(_Atomic uint32_t *word, uint32_t seen)
{
	may_go_on |= pthread_equal(pthread_self(), main_thread);
	__real_pin_os_wait(word, seen);
}

/* Called after the library's own. */
static void note_fork(void)
{
	if (n_started)
		let_it_finish(NULL, 0, true);
	is_held_up = may_go_on = false;
	live_at_fork = fake_verbs.live;
	bytes_at_fork = fake_verbs.registered;
}

static bool ends_at_once(void)
{
	return true;
}

/* --- words ---------------------------------------------------------------------------- */

static void be_eager(char *p, size_t n, bool is_on)
{
	pin_options.mode = PIN_MODE_EAGER;
}

static void set_able(char *p, size_t n, bool is_on)
{
	must(!n_started, "there is a thread");
	may_start = is_on;
}

static void set_clock(char *p, size_t n, bool is_on)
{
	stands_at_ns = is_on ? __real_pin_os_time_ns(CLOCK_MONOTONIC) + HOUR_NS : 0;
}

static void change(char *p, size_t n, bool is_on)
{
	pin_state_changed();
}

static void must_sleep(char *p, size_t n, bool is_on)
{
	must(soon(pause_ms == UINT64_MAX), "it does not sleep");
}

static void extend(char *p, size_t n, bool is_on)
{
	span = is_on ? NULL : span;
	p = grow(&span, n);
	heap = is_on ? p : heap;
}

/* So many granules, every other of which is used, with a look after each. */
static void fill(char *p, size_t n, bool is_on)
{
	for (; n--; p += 2 * PIECE) {
		fake_touch(p, PIECE);
		let_it_look(p, 0, true);
	}
}

/* So many granules, that far apart. */
static void touch_apart(char *apart, size_t n, bool is_on)
{
	for (size_t i = 0; i < n; i++)
		fake_touch(heap + i * (size_t)(apart - heap), PIECE);
}

static void touch_half(char *p, size_t n, bool is_on)
{
	fake_touch_half(p);
}

static void must_have_soon(char *p, size_t n, bool is_on)
{
	must(soon(is_pinned(p)), "it is not registered");
}

static void must_have(char *p, size_t n, bool is_on)
{
	must(has_keys(p, n ? n : PIN_PAGE) == is_on, "in one memory region");
}

static void set_block(char *p, size_t n, bool is_on)
{
	mark_block(p, n, is_on);
}

/* Of sixteen granules that are 8 apart so many have keys with these rights. */
static bool have_keys(size_t n, unsigned access)
{
	struct pin_access_set *set = pin_access_set_of(pin_domain_find(case_pd()), access);

	for (size_t i = 0; i < 16; i++)
		n -= set->domain && pin_keys_covering(set, heap + 8 * i * PIECE) > 0;
	return !n;
}

static void must_be_alike(char *p, size_t n, bool is_on)
{
	unsigned access = case_skips("/") ? case_rights() : 0;

	must(soon(have_keys((size_t)(p - heap), access)), "others have keys");
}

/* So many bytes are registered meanwhile at most, in so many memory regions. */
static void have_child(char *most, size_t live, bool is_on)
{
	must(in_child(ends_at_once) && bytes_at_fork <= (size_t)(most - heap) &&
		     (!live || live_at_fork <= live),
	     "%u memory regions, %zu bytes", live_at_fork, (size_t)bytes_at_fork);
}

static const struct case_word words[] = {
	{"eager", be_eager},	    {"unable", set_able},
	{"able", set_able, true},   {"stand", set_clock, true},
	{"go", set_clock},	    {"hours", let_hours_pass},
	{"hour", let_an_hour_pass}, {"look", let_it_look},
	{"finish", let_it_finish},  {"change", change},
	{"sleeps", must_sleep},	    {"span:", extend, true},
	{"grow:", extend},	    {"fill:", fill},
	{"touches:", touch_apart},  {"half:", touch_half},
	{"soon:", must_have_soon},  {"has:", must_have, true},
	{"lacks:", must_have},	    {"block:", set_block, true},
	{"unblock:", set_block},    {"islands:", must_be_alike},
	{"fork:", have_child},	    {NULL}};

/* --- what is more than words ---------------------------------------------------------- */

/* How often a block that moves all the time, and nobody requests, has a memory region. */
static unsigned n_followed(char *p, size_t length, unsigned moves)
{
	unsigned n = 0;

	for (unsigned i = 0; i < moves; i++) {
		mark_block(p + i * PIN_PAGE, length, true);
		let_hours_pass(p, 0, true);
		case_do(".2c+1g,64");
		n += has_keys(p + i * PIN_PAGE, length);
		mark_block(p + i * PIN_PAGE, length, false);
	}
	return n;
}

/* Of the heap a fifth is registered again, and more with what requests wait for. */
static void moving(void)
{
	size_t length = CELL / 2;
	char *p = heap + 2 * CELL;
	unsigned n = n_followed(p + PIECE, length, 16);

	must(n && n <= pin_span_bytes() / 5 * 6 / length, "it is registered %u times", n);
	case_do(".5c,1c");
	must(n_followed(p + PIECE, length, 1) == 1, "it does not follow after requests");
}

static const struct pin_ibverbs *real;

/* Those of the registrar take until the main thread waits for one. */
static struct ibv_mr *slow_reg_mr(struct ibv_pd *its, void *addr, size_t length, uint64_t iova,
				  unsigned access)
{
	struct ibv_mr *mr = real->reg_mr_iova2(its, addr, length, iova, access);

	if (!pthread_equal(pthread_self(), main_thread)) {
		is_held_up = true;
		soon(may_go_on);
	}
	return mr;
}

/* The adapter of P has room, and no other. */
static struct ibv_mr *reg_mr_of_p(struct ibv_pd *its, void *addr, size_t length, uint64_t iova,
				  unsigned access)
{
	if (its->context == case_pd()->context || length < PIN_GRANULE)
		return real->reg_mr_iova2(its, addr, length, iova, access);
	errno = ENOMEM;
	return NULL;
}

static void two_adapters(void)
{
	real = pin_ibverbs();
	replace_verbs(reg_mr_of_p, NULL);
	case_do("+Q1 Q:.0,64 Q:.4p,64 Q:.8p,64 Q:.12p,64 Q:.16p,64 finish touch:3c,1c change "
		"soon:3c soon:4c-1p");
	pin_ibverbs_replace(real);
}

static void beside(void)
{
	main_thread = pthread_self();
	real = pin_ibverbs();
	replace_verbs(slow_reg_mr, NULL);
	case_do("touch:2c,1c change");
	must(soon(is_held_up), "nothing is registered");
	case_do("b=2c+20g,64 c=2c+41g-32,64 bytes=1c+2g+4p");
	must(!may_go_on, "a request has waited");
	case_do("fork:4p,3");
	must(soon(is_held_up) && pin_evict_one(NULL, true), "an eviction has not waited");
	case_do("soon:2c");
	pin_ibverbs_replace(real);
}

/*
 * Looks that find new pages (n), or are soon after (s), or more to do (m), gaps (capitals), or
 * nothing (_): the pause after each, and whether the next one mends.
 */
static void paces(void)
{
	static const struct {
		uint64_t ms;
		int finds;
		uint64_t pause_ms;
		bool mends;
	} rows[] = {{0, '_', 4096},	   {0, '_', UINT64_MAX}, {0, '_', UINT64_MAX},
		    {0, 'n', 4},	   {1, 's', 4},		 {60, '_', 8},
		    {70, '_', 16},	   {80, 'm', 4},	 {1000, 'A', 512},
		    {1499, 'A', 512},	   {1500, 'A', 4, true}, {1600, '_', 8},
		    {2000, 'B', 512},	   {2499, 'C', 512},	 {5999, 'D', 512},
		    {6000, 'E', 4, true},  {6001, 'F', 512},	 {10000, 'G', 512},
		    {10001, 'H', 4, true}, {10002, '_', 8}};
	struct pin_pace pace = {.pause_ms = 2048, .new_at = 99};

	for (size_t i = 0; i < PIN_ARRAY_SIZE(rows); i++) {
		int finds = rows[i].finds;
		struct pin_look look = {.at = rows[i].ms * 1000000,
					.is_quiet = finds != 's',
					.has_more = finds == 'm',
					.n_new = finds == 'n',
					.gaps = finds < '_' ? (uintptr_t)finds : 0};

		pace = pin_pace_after(pace, &look, i);
		must(pace.pause_ms == rows[i].pause_ms && pace.mends == rows[i].mends &&
			     (pace.new_at == i) == look.n_new,
		     "row %zu: %zu ms", i, (size_t)pace.pause_ms);
	}
}

/* What it registers to ask the adapter is given back. */
static void asked_again(void)
{
	const struct pin_adapter *its = pin_domain_find(case_pd())->adapter;
	int64_t before = its->room;

	case_do("rereg:ENOSYS a>100,7!ENOSYS rereg:0");
	must(before < INT64_MAX && its->room == before, "it takes %zu bytes",
	     (size_t)(before - its->room));
}

/* The thread's helper shall not be found running, which a sanitizer would report. */
static void end_thread(void)
{
	if (!n_started)
		return;
	ends = true;
	pin_state_changed();
	soon(has_ended);
}

/* --- cases ---------------------------------------------------------------------------- */

/* Of six cells of 256 MiB one is resident. The heap is registered in cells of two granules. */
#define ARMED "touch:0,1c eager a=1c,64 soon:0 hours bytes=1c+1p "

static const struct test_case cases[] = {
	{"in lazy mode there is no thread, and only what is requested is registered",
	 "touch:0,1c a=1c,64 unable able live=1 bytes=1p"},
	{"if the thread cannot be started, requests are served without, and it is later",
	 "touch:0,1c eager unable a=1c,64 live=1 able +Q Q:b=1c,64 "
	 "soon:0"},
	{"the first request starts registering resident memory ahead, and nothing else",
	 ARMED "has:1c-1p waited=1 live=65"},
	{"memory touched later is registered later, and gaps in it are not",
	 ARMED "touch:1c+20g,10g touch:1c+32g,1g change soon:1c+32g soon:1c+20g soon:1c+29g "
	       "lacks:1c+30g lacks:1c+31g lacks:1c+20g-1p"},
	{"growth alone registers nothing, and using the memory does, without a request",
	 ARMED "grow:0,1c hours lacks:6c touch:6c,1g soon:6c"},
	{"of memory that is being filled cells wait a little, and halves become whole cells",
	 ARMED
	 "finish stand look zero fill:2c,16 ahead=0 go until:ahead=16 has:2c touch:2c,1c "
	 "change soon:3c-1g hours has:2c,2g lacks:2c,2g+1 has:3c-2g,2g bytes=2c+1p live=129"},
	{"a memory region ends where a block begins, without what the block has not used",
	 ARMED "block:3c+1g+256p,1g+128p hours touch:3c,2g half:3c+2g touch:3c+3g,1g hours "
	       "has:3c,1g+256p has:3c+1g+256p,256p lacks:3c,2g has:3c+3g,1g lacks:3c+2g+383p "
	       "lacks:3c+2g touch:3c+2g,1g hours has:3c+1g+256p,1g+128p "
	       "lacks:3c+1g+256p,1g+128p+1 bytes=1c+4g+1p block:4c+256p,1g touch:4c,1g "
	       "half:4c+1g hours has:4c+256p,1g"},
	{"blocks that are shorter than a cell share one, wherever they begin", ARMED
	 "block:3c+128p,256p block:3c+384p,256p block:3c+640p,256p block:3c+896p,256p "
	 "block:3c+1152p,256p block:3c+1408p,256p block:3c+1664p,256p block:3c+1920p,256p "
	 "touch:3c,5g hours has:3c+384p,1g has:3c+896p,1g has:3c+1408p,1g"},
	{"what moves all the time follows where requests wait, not where they find something",
	 ARMED "touch:2c,1c hours call", NULL, moving},
	{"between buffers in use the others are registered, and no more than a quarter twice",
	 "touch:3c,1g eager hold:8,64p,3c,24p hours zero .3c+32p,16p .3c+48p,16p .3c+96p,16p "
	 ".3c+496p,16p tried=0 reg<1g"},
	{"spans that begin later are registered, too", ARMED "span:0,3g touch:0,3g soon:2g"},
	{"a request at the end of the heap takes no memory that was never used",
	 ARMED "span:0,8g finish .0,64 bytes=1c+2p"},
	{"leftovers are deregistered after their users have gone",
	 ARMED "b=3c,64 touch:3c,1g change soon:3c+1g-1p -b change until:live=66"},
	{"a cell does not replace a much larger memory region, of which it has a part",
	 ARMED "b=3c,33g touch:3c,34g -b hours has:3c,33g has:3c+32g,2g"},
	{"nor does it replace more than half of it, and the rest has one",
	 ARMED "b=4c,1g+256p -b touch:4c,2g hours has:4c+1g,1g lacks:4c,2g"},
	{"parts of a block wait until it stays as it is",
	 ARMED "block:3c,8g touch:3c,4g hour hour lacks:3c hour hour has:3c,4g"},
	{"the pauses grow while some is not resident, and then the thread sleeps",
	 ARMED "sleeps .3c,64 sleeps touch:0,6c change sleeps until:reg>6c-1 finish "
	       "bytes=6c+1p"},
	{"fork() and evictions wait for a cell that is registered ahead; requests use their "
	 "pages",
	 ARMED "call", NULL, beside},
	{"what is in use or known is registered during fork(), and the rest again later",
	 ARMED "b=4c,64 touch:3c,1c change soon:3c A=5c,64 fork:3p,3 soon:3c soon:4c-1g "
	       "hold:4,32g,3c,64 half:3c+4g fork:12g+3p finish lacks:3c+4g soon:3c+5g"},
	{"pieces of a segment are registered, but one that cannot be pinned at each look",
	 ARMED "stand finish zero fail:1,EFAULT segment:3c+1g,2c,1c finish lacks:4c has:5c "
	       "finish tried=2 "
	       "hours zero touch:5c,2g hours tried=1 has:5c+1g,1g"},
	{"what is too large for an adapter is registered in halves, if it is no segment",
	 "mrsize:1g segment:3c,1c,1c +Q touch:0,4c eager Q:a=1c,64 hours has:0,1g lacks:3c"},
	{"after an error that passes all is registered ahead again",
	 ARMED "touch:3c,1c hours has:3c fail:1,EIO b=f,64!EIO lacks:3c finish soon:3c"},
	{"after one that stays nothing is, until a request is registered",
	 ARMED "fail:1000,EIO b=f,64!EIO finish zero hours tried=0 fail:0,0 .3c,64 soon:0"},
	{"for a PD that was disabled nothing is, also while it is in use",
	 ARMED "disarm:P touch:3c,1c hours lacks:3c"},
	{"where little is touched the pagemap is not read; a PD can be disabled",
	 ARMED "span:0,64c block:1g+256p,1g half:8g finish zero finish looked=0 -a disarm:P "
	       "touches:2g,4096 enable:P "
	       "until:live>10 disarm:P finish live=0"},
	{"with the first rights all memory is registered ahead, with others after requests",
	 "touches:8g,16 eager .0,64 islands:16/lrw .0,64/l .8g,64/l .16g,64/l .0,64/l .8g,64/l "
	 ".16g,64/l hours islands:3/l .24g,64/l islands:16/l enable:P/r islands:16/r "
	 ".40g,64/lrwa hours islands:1/lrwa disarm:P live=0 .0,64/l islands:16/l hours "
	 "islands:0/lrw"},
	{"pauses grow until something is found; what is the same, or has long been, is mended",
	 "call", NULL, paces},
	{"a re-registration that fails takes no room",
	 "eager unable a=0,64 limit:1p b=f,64m!ENOMEM limit:none call", NULL, asked_again},
	{"what one adapter has no room for is registered on another", ARMED "call", NULL,
	 two_adapters},
/* Options do not change in a program that runs, and are read without a lock. */
#ifndef __SANITIZE_THREAD__
	{"where there is no room by the limits, memory is registered ahead later",
	 ARMED "most:1c+1p+256p touch:3c,1c hour lacks:3c most:none finish soon:3c"},
	{"of what an adapter has room for half is registered ahead, and more as others leave",
	 ARMED "b=f,64m limit:1c+1p+65m touch:3c,1c change until:bytes=64g+64m+1p lacks:3c "
	       "limit:none hour bytes=64g+64m+1p -b until:bytes=80g+1p"},
	{"all of that may be in use, and as much is left to requests",
	 ARMED "limit:1c+1p touch:0,6c change until:bytes=64g+1p hold:60,12g,0,64 "
	       "finish b=f,120m"},
	{"where less may be locked than pinned, nothing is",
	 ARMED "memlock:8c touch:3c,1c hours lacks:3c memlock:none change soon:3c"},
	{"what could not be pinned is tried again, though something happens all the time",
	 ARMED "hour touch:3c,1g fail:1,EFAULT hour hour hour "
	       "failing=0 has:3c"},
	{"what is beyond a limit that was lowered is deregistered",
	 ARMED "b=3c,40g c=4c,40g -b -c most:auto cgroup:84g hour reg<63g reg>0"},
#endif
};

int main(int argc, char **argv)
{
	if (!lazy_pool() || pthread_atfork(note_fork, NULL, NULL) || atexit(end_thread))
		return 99;
	fake_kernel.keeps_memory = true;
	heap = grow(&span, 6 * CELL);
	more_words = words;
	run_cases(cases, PIN_ARRAY_SIZE(cases), argv);
	return done_testing();
}
