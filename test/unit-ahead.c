/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The thread that registers ahead of requests: it registers resident memory and nothing else,
 * and sleeps when there is nothing to do. Uses a simulated kernel.
 */
#include <config.h>

#include "allocator/os.h"
#include "regpool/choice.h"
#include "regpool/evict.h"
#include "regpool/keys.h"
#include "regpool/segments.h"
#include "regpool/state.h"
#include "test/beside.h"
#include "test/blocks.h"
#include "test/fake-kernel.h"
#include "test/spans.h"
#include "test/tap.h"

#include <dirent.h>
#include <errno.h>

#define CELL	(256 * PIN_MIB)
#define HOUR_NS 3600000000000ull

/* The linker puts these in front of the library's own. */
uint64_t __real_pin_os_now_ns(void);
void __real_pin_os_sleep_ms(uint64_t ms);
void __real_pin_os_wait_ms(_Atomic uint32_t *word, uint32_t seen, uint64_t ms);
int __real_pin_thread_start(void *(*run)(void *), void *arg, const char *name);

static _Atomic uint64_t stands_at_ns; /* 0: time goes on */
static _Atomic uint64_t pause_ms;     /* how long the thread waits at most */
static _Atomic bool ends, has_ended;
static _Atomic unsigned n_waits;

uint64_t __wrap_pin_os_now_ns(void)
{
	return stands_at_ns ? stands_at_ns : __real_pin_os_now_ns();
}

void __wrap_pin_os_wait_ms(_Atomic uint32_t *word, uint32_t seen, uint64_t ms)
{
	pause_ms = ms;
	n_waits++;
	for (has_ended = ends; has_ended;)
		pause();
	__real_pin_os_wait_ms(word, seen, ms);
}

/* By a clock that is set a look may have taken any time, and the rest after it as well. */
void __wrap_pin_os_sleep_ms(uint64_t ms)
{
	__real_pin_os_sleep_ms(ms < 10 ? ms : 10);
}

static bool may_start = true;

int __wrap_pin_thread_start(void *(*run)(void *), void *arg, const char *name)
{
	return may_start ? __real_pin_thread_start(run, arg, name) : EAGAIN;
}

static struct pin_span *span;
static struct ibv_pd *pd;
static struct ibv_mr *first; /* by which the PD is armed */

/* In one memory region. */
static bool has_keys(const void *addr, size_t n_bytes)
{
	struct pin_access_set *set = NULL;

	while ((set = pin_access_set_next(NULL, set))) {
		uint32_t numbers[] = {pin_keys_covering(set, addr),
				      pin_keys_covering_page(set, addr)};

		for (size_t i = 0; i < PIN_ARRAY_SIZE(numbers); i++)
			if (numbers[i] &&
			    pin_entry_covers(pin_entry_at(set, numbers[i]), addr, n_bytes))
				return true;
	}
	return false;
}

static bool is_pinned(const void *addr)
{
	return has_keys(addr, PIN_PAGE);
}

/* The thread has made a pass over the whole heap since, and waits. */
static void let_it_finish(void)
{
	for (int i = 0; i < 2; i++) {
		unsigned n = n_waits;

		pin_state_changed();
		soon(n_waits != n);
	}
}

/* By the thread's clock, which goes on from later than any time it has taken down. */
static void let_hours_pass(void)
{
	for (int i = 1; i <= 3; i++) {
		stands_at_ns = __real_pin_os_now_ns() + (uint64_t)i * HOUR_NS;
		let_it_finish();
	}
	stands_at_ns = 0;
}

static unsigned count_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	unsigned n = 0;

	for (struct dirent *task; (task = readdir(tasks));)
		n += task->d_name[0] != '.';
	closedir(tasks);
	return n;
}

static void lazy(char *heap)
{
	unsigned threads = count_threads();

	fake_touch(heap, CELL);
	pin_options.mode = PIN_MODE_LAZY;
	pd = new_pd();
	first = reg(pd, heap + CELL, 64, RIGHTS);
	ok(count_threads() == threads, "in lazy mode there is no thread");
	ok(fake_verbs.live == 1 && fake_verbs.registered == PIN_PAGE,
	   "so only what is requested is registered");
	pin_mr_deregister(first);
	pin_domain_dealloc(pd);
}

/* As where a limit on the user's processes is reached, for a while: it is not for ever. */
static void without_thread(char *heap)
{
	unsigned threads = count_threads();

	pin_options.mode = PIN_MODE_EAGER;
	may_start = false;
	pd = new_pd();
	first = reg(pd, heap + CELL, 64, RIGHTS);
	ok(count_threads() == threads && fake_verbs.live == 1 && reaches(first),
	   "if the thread cannot be started, requests are served without");
	pin_mr_deregister(first);
	pin_domain_dealloc(pd);
	may_start = true;
}

static void resident(char *heap)
{
	uint64_t created = pin_state.created;

	pin_options.mode = PIN_MODE_EAGER;
	pd = new_pd();
	first = reg(pd, heap + CELL, 64, RIGHTS);
	ok(soon(is_pinned(heap)), "the first request starts registering resident memory ahead");
	let_hours_pass();
	ok(is_pinned(heap + CELL - PIN_PAGE) && fake_verbs.registered == CELL + PIN_PAGE,
	   "that is all, and nothing else");
	ok(pin_state.created - created == pin_state.ahead + 1, "no request waited for these");
}

static void touched_later(char *heap)
{
	char *p = heap + CELL + 20 * PIECE;

	fake_touch(p, 10 * PIECE);
	fake_touch(p + 12 * PIECE, PIECE);
	pin_state_changed();
	ok(soon(is_pinned(p + 12 * PIECE)) && soon(is_pinned(p)) &&
		   soon(is_pinned(p + 9 * PIECE)),
	   "memory touched later is registered later");
	ok(!is_pinned(p + 10 * PIECE) && !is_pinned(p + 11 * PIECE) && !is_pinned(p - 1),
	   "gaps in it are not registered");
}

static void grown(void)
{
	char *p = grow(&span, CELL);

	let_hours_pass();
	ok(!is_pinned(p), "growth alone registers nothing");
	fake_touch(p, PIECE);
	ok(soon(is_pinned(p)), "using the memory does, without a request");
}

/* The thread has looked once since, from the beginning. */
static void let_it_look(void)
{
	for (int i = 0; i < 2; i++) {
		unsigned looks = fake_kernel.looks;

		pin_state_changed();
		soon(fake_kernel.looks != looks);
	}
}

#define FILLED 16

/* A piece now and then, and no request: by then the heap has cells of two. */
static void filled_slowly(void)
{
	char *p = grow(&span, 2 * CELL);
	unsigned whole = 0;
	uint64_t before;
	size_t bytes;

	let_it_finish();
	/* Later than any time the thread has taken down; what it thought due is done with. */
	stands_at_ns = __real_pin_os_now_ns() + HOUR_NS;
	let_it_look();
	before = pin_state.created;
	bytes = fake_verbs.registered;
	for (size_t i = 0; i < 2 * FILLED; i += 2) {
		fake_touch(p + i * PIECE, PIECE);
		let_it_look();
	}
	ok(pin_state.created == before, "of memory that is being filled cells wait");
	stands_at_ns = 0;
	ok(soon(pin_state.created >= before + FILLED) && pin_state.created == before + FILLED &&
		   is_pinned(p),
	   "a little later, each half is once");
	fake_touch(p, CELL);
	pin_state_changed();
	ok(soon(is_pinned(p + CELL - PIECE)), "and so are those that are complete later");
	let_hours_pass();
	for (size_t i = 0; i < CELL; i += 2 * PIECE)
		whole += has_keys(p + i, 2 * PIECE);
	ok(whole == CELL / 2 / PIECE && !has_keys(p, 2 * PIECE + 1) &&
		   fake_verbs.registered == bytes + CELL,
	   "as whole cells in place of halves: %u", whole);
}

/* One across the border of cells, the last granule of which is used in part. */
static void blocks(void)
{
	char *p = grow(&span, 4 * PIECE), *block = p + 3 * PIECE / 2;
	size_t length = 5 * PIECE / 4, bytes;

	mark_block(block, length, true);
	let_hours_pass();
	bytes = fake_verbs.registered;
	fake_touch(p, 2 * PIECE);
	fake_touch_half(p + 2 * PIECE);
	fake_touch(p + 3 * PIECE, PIECE);
	let_hours_pass();
	ok(has_keys(p, 3 * PIECE / 2) && has_keys(block, PIECE / 2) &&
		   !has_keys(p, 2 * PIECE) && has_keys(p + 3 * PIECE, PIECE),
	   "a memory region ends where a block begins");
	ok(!is_pinned(block + length - PIN_PAGE) && !is_pinned(p + 2 * PIECE),
	   "what it has not used is not registered");
	fake_touch(p + 2 * PIECE, PIECE);
	let_hours_pass();
	ok(has_keys(block, length) && !has_keys(block, length + 1),
	   "then the block is in one, to its end");
	mark_block(block, length, false);
	let_hours_pass();
	ok(has_keys(p, 2 * PIECE) && has_keys(p + 2 * PIECE, 2 * PIECE) &&
		   fake_verbs.registered == bytes + 4 * PIECE,
	   "when it has gone, its cells are as the others");
}

/* How often a block that moves all the time, and nobody requests, has a memory region. */
static unsigned n_followed(char *p, size_t length, unsigned moves)
{
	unsigned n = 0;

	for (unsigned i = 0; i < moves; i++) {
		mark_block(p + i * PIN_PAGE, length, true);
		let_it_finish();
		n += has_keys(p + i * PIN_PAGE, length);
		mark_block(p + i * PIN_PAGE, length, false);
	}
	return n;
}

#define MOVES 16

/* Of the heap a quarter is registered again, and more with each request. */
static void moving(void)
{
	size_t length = CELL / 2, most;
	char *p = grow(&span, CELL);
	unsigned n;

	fake_touch(p, CELL);
	let_hours_pass();
	most = pin_span_bytes() / 4 / length + 2;
	n = n_followed(p + PIECE, length, MOVES);
	ok(n <= most, "what moves all the time for nobody is registered %u times again", n);
	for (size_t i = 0; i < CELL; i += PIECE)
		pin_mr_deregister(reg(pd, p + i, 64, RIGHTS));
	ok(n_followed(p + PIECE, length, 2) == 2, "and follows again where there are requests");
}

static void other_spans(void)
{
	struct pin_span *other = NULL;
	char *p = grow(&other, 3 * PIECE);

	fake_touch(p, 3 * PIECE);
	ok(soon(is_pinned(p + 2 * PIECE)), "spans that begin later are registered, too");
}

/* Memory that is registered becomes resident, also what nobody has used yet. */
static void unused(void)
{
	struct pin_span *last = NULL;
	char *p = span_grow(&last, 8 * PIECE, 0);
	size_t before;

	let_it_finish();
	before = fake_verbs.registered;
	pin_mr_deregister(reg(pd, p, 64, RIGHTS));
	ok(fake_verbs.registered == before + PIN_PAGE,
	   "a request at the end of the heap takes no memory that was never used");
	fake_touch(p, 8 * PIECE);
}

/* There is a wider one, while the first is used. */
static void swept(void)
{
	char *p = grow(&span, CELL);
	struct ibv_mr *narrow;
	unsigned live;

	let_hours_pass();
	live = fake_verbs.live + 1;
	narrow = reg(pd, p, 64, RIGHTS);
	fake_touch(p, PIECE);
	pin_state_changed();
	if (!soon(is_pinned(p + PIECE - PIN_PAGE)))
		abort();
	pin_mr_deregister(narrow);
	pin_state_changed();
	ok(soon(fake_verbs.live == live),
	   "leftovers are deregistered after their users have gone");
}

static void backs_off(void)
{
	char *p = grow(&span, CELL);

	pin_state_changed();
	ok(soon(pause_ms >= 64 && pause_ms < UINT64_MAX),
	   "while some of the heap is not resident, the pauses grow");
	pin_mr_deregister(reg(pd, p, 64, RIGHTS));
	ok(soon(pause_ms < 64), "a registration makes them short again");
	for (uint32_t i = 0; i < pin_span_count(); i++)
		fake_touch((void *)pin_span_get(i)->start, pin_span_get(i)->length);
	pin_state_changed();
	ok(soon(pause_ms == UINT64_MAX && pin_state.registered >= pin_span_bytes()),
	   "when all is resident, the thread sleeps until something happens");
	ok(fake_verbs.registered == pin_state.registered, "all is registered");
}

/* The first piece cannot be pinned. */
static void segments(void)
{
	char *p = grow(&span, 2 * CELL);
	struct pin_segment segment = {.piece = CELL};
	unsigned tried;

	let_hours_pass();
	let_it_finish(); /* by the clock that goes */
	tried = fake_verbs.tried;
	segment.range = pin_range_of(p, 2 * CELL);
	fake_verbs.fail_errno = EFAULT;
	fake_verbs.fail_next = 1;
	pin_segments_add(&segment);
	segment.is_ready = true;
	let_it_finish();
	ok(!is_pinned(p) && is_pinned(p + CELL), "pieces of a segment are registered, each");
	let_it_finish();
	ok(fake_verbs.tried == tried + 2,
	   "one that cannot be pinned is not tried at each look");
	pin_segments_remove(&segment);
}

/* Of the program's own memory, once: nothing was wrong with the adapter. */
static void passing_error(void)
{
	char *p = grow(&span, CELL), stack[64];

	fake_touch(p, CELL);
	let_hours_pass();
	fake_verbs.fail_errno = EIO;
	fake_verbs.fail_next = 1;
	if (!is_pinned(p) || reg(pd, stack, sizeof stack, RIGHTS) || is_pinned(p))
		abort();
	let_it_finish();
	ok(soon(is_pinned(p)), "after an error that passes all is registered ahead again");
}

#define MANY (16 * PIN_GIB)

/* Stretch after stretch, and the PD's lock is free in between. */
static void disabled(void)
{
	struct pin_span *holes = NULL;
	char *p = grow(&holes, MANY);
	size_t looked_at;

	let_it_finish();
	looked_at = fake_kernel.looked_at;
	let_it_finish();
	ok(fake_kernel.looked_at - looked_at < MANY / 100,
	   "of memory that nobody has touched the pagemap is not read");
	pin_domain_disarm(pd);
	for (size_t i = 0; i < MANY; i += 2 * PIECE)
		fake_touch(p + i, PIECE);
	pin_domain_enable(pd, RIGHTS);
	ok(soon(fake_verbs.live > 10), "memory is being registered ahead");
	pin_domain_disarm(pd);
	let_it_finish();
	ok(!fake_verbs.live, "then a PD can be disabled, and nothing more is registered in it");
}

static struct pin_ibverbs verbs;
static struct ibv_mr *(*real_reg_mr)(struct ibv_pd *pd, void *addr, size_t length,
				     uint64_t iova, unsigned access);
static _Atomic bool is_held_up, may_go_on;

static pthread_t main_thread;

/* Those of the registrar take until they may end. */
static struct ibv_mr *slow_reg_mr(struct ibv_pd *its, void *addr, size_t length, uint64_t iova,
				  unsigned access)
{
	if (!pthread_equal(pthread_self(), main_thread)) {
		is_held_up = true;
		soon(may_go_on);
	}
	return real_reg_mr(its, addr, length, iova, access);
}

static void beside(void)
{
	const struct pin_ibverbs *real = pin_ibverbs();
	char *p = grow(&span, CELL);
	struct ibv_mr *one, *two;
	size_t before;

	main_thread = pthread_self();
	verbs = *real;
	real_reg_mr = verbs.reg_mr_iova2;
	verbs.reg_mr_iova2 = slow_reg_mr;
	pin_ibverbs_replace(&verbs);
	fake_touch(p, CELL);
	pin_state_changed();
	soon(is_held_up);
	before = fake_verbs.registered;
	one = reg(pd, p + 20 * PIECE, 64, RIGHTS);
	two = reg(pd, p + 41 * PIECE - 32, 64, RIGHTS);
	ok(!may_go_on && fake_verbs.registered == before + 3 * PIN_PAGE,
	   "requests do not wait for a cell that is registered ahead, and use their own pages");
	may_go_on = true;
	ok(soon(is_pinned(p)), "which is registered around them");
	pin_ibverbs_replace(real);
	pin_mr_deregister(one);
	pin_mr_deregister(two);
}

static _Atomic unsigned live_at_fork;
static _Atomic size_t bytes_at_fork;

/* Called after the library's own. */
static void note_fork(void)
{
	live_at_fork = fake_verbs.live;
	bytes_at_fork = fake_verbs.registered;
}

static bool ends_at_once(void)
{
	return true;
}

static void have_child(void)
{
	if (!in_child(ends_at_once))
		abort();
}

/* What was registered before the process has forked is gone. */
static void forks_again(char *p)
{
	struct ibv_mr *used[4];
	size_t before = bytes_at_fork;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(used); i++)
		used[i] = reg(pd, p + i * CELL / 4, 64, RIGHTS);
	have_child();
	ok(bytes_at_fork - before <= PIN_ARRAY_SIZE(used) * (pin_span_bytes() / 256),
	   "little beside what is in use is registered during fork(): "
	   "%zu",
	   (bytes_at_fork - before) / PIECE);
	for (size_t i = 0; i < PIN_ARRAY_SIZE(used); i++)
		pin_mr_deregister(used[i]);
	ok(soon(is_pinned(p)), "and so on");
}

/* With a block in use, and one whose keys are known, in other memory regions than the rest. */
static void forks(void)
{
	char *held = grow(&span, CELL), *used = grow(&span, CELL), *p = grow(&span, CELL);
	struct ibv_mr *mr = reg(pd, used, 64, RIGHTS);
	struct pin_mr_key keys, again;
	uint32_t lkey;

	fake_touch(p, CELL);
	pin_state_changed();
	if (!soon(is_pinned(p)) || look_up(pd, held, 64, &keys))
		abort();
	lkey = mr->lkey;
	have_child();
	ok(live_at_fork == 2, "what is in use is registered during fork(): %u", live_at_fork);
	ok(!look_up(pd, held, 64, &again) && again.lkey == keys.lkey && again.rkey == keys.rkey,
	   "keys that are known stay");
	ok(mr->lkey == lkey && reaches(mr), "as does what is in use");
	ok(soon(is_pinned(p)) && soon(is_pinned(p + CELL - PIECE)),
	   "the rest is registered again later");
	forks_again(p);
	pin_mr_deregister(mr);
}

/* By hours that go on, as the time of the last shortage is one of them. */
static void let_more_hours_pass(void)
{
	static uint64_t hours = 3;

	stands_at_ns = __real_pin_os_now_ns() + ++hours * HOUR_NS;
	let_it_finish();
}

static void set_most(bool is_told, size_t n_bytes)
{
	if (is_told)
		pin_options.max_pinned = n_bytes;
	else
		fake_verbs.limit = n_bytes;
}

/* At a limit of the library, or one that the adapter does not tell. */
static void heals_at(bool is_told)
{
	char *p = grow(&span, CELL);

	set_most(is_told, fake_verbs.registered + PIECE / 2);
	fake_touch(p, CELL);
	let_more_hours_pass();
	ok(!is_pinned(p), "where there is no room memory is not registered ahead");
	set_most(is_told, SIZE_MAX);
	let_it_finish();
	ok(!is_pinned(p), "nor is that tried again at once");
	let_more_hours_pass();
	ok(soon(is_pinned(p)), "it is later, when there is room");
}

/* No thread looks while the clock stands, unless it is set on. */
static void __attribute__((unused)) heals(void)
{
	char *p;
	size_t all;

	pin_domain_enable(pd, RIGHTS);
	let_more_hours_pass();
	heals_at(true);
	heals_at(false);
	all = fake_verbs.registered;
	if (!pin_evict_one(NULL, 0))
		abort();
	let_it_finish();
	ok(fake_verbs.registered < all, "what was evicted is not registered again at once");
	let_more_hours_pass();
	ok(soon(fake_verbs.registered == all), "but later");
	p = grow(&span, PIECE);
	fake_touch(p, PIECE);
	fake_verbs.fail_errno = EFAULT;
	fake_verbs.fail_next = 1;
	let_more_hours_pass();
	let_more_hours_pass();
	ok(!fake_verbs.fail_next && is_pinned(p),
	   "what could not be pinned is tried again, though something happens all the time");
}

/* Half of what is pinned, as a control group's limit may become while the process runs. */
static void __attribute__((unused)) shrinks(void)
{
	size_t limit = pin_state.registered / 2;

	pin_options.max_pinned = PIN_PINNED_AUTO;
	fake_kernel.cgroup = limit / 3 * 4;
	let_more_hours_pass();
	ok(pin_state.registered && pin_state.registered <= limit,
	   "what is beyond a limit that was lowered is deregistered: %zu of %zu",
	   pin_state.registered / PIECE, limit / PIECE);
	pin_options.max_pinned = SIZE_MAX;
	fake_kernel.cgroup = 0;
}

int main(void)
{
	char *heap;

	if (!lazy_pool() || pthread_atfork(note_fork, NULL, NULL))
		return 99;
	fake_kernel.keeps_memory = true;
	heap = grow(&span, 2 * CELL);
	lazy(heap);
	without_thread(heap);
	resident(heap);
	touched_later(heap);
	grown();
	filled_slowly();
	blocks();
	moving();
	other_spans();
	unused();
	swept();
	backs_off();
	pin_mr_deregister(first);
	beside();
	forks();
	segments();
	passing_error();
	disabled();
/* Options do not change in a program that runs, and are read without a lock. */
#ifndef __SANITIZE_THREAD__
	heals();
	shrinks();
#endif
	pin_domain_disarm(pd);
	let_it_finish();
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live && !pin_state.registered,
	   "deallocating the PD deregisters everything");
	/* The thread's helper shall not be found running, which a sanitizer would report. */
	ends = true;
	pin_state_changed();
	soon(has_ended);
	return done_testing();
}
