/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/lanes.h"
#include "allocator/os.h"
#include "allocator/span.h"

#define N_LANES 512 /* processors beyond these share lanes */
#define BITS	64
#define NONE	UINT32_MAX

/*
 * The length of a run says in which set of words it may be: a cache line. The last set is for
 * runs that are too long for the others. What it holds merges before a request of such a length
 * is served by the map.
 */
#ifndef WAYS /* as where interleavings are tried */
#define WAYS 8
#endif
#define SETS	   8
#define LONG_SET   (SETS * WAYS)
#define N_WORDS	   (LONG_SET + WAYS)
#define SHORT_MOST 64 /* pages: 256 KiB, 4 MiB */
#define LONG_MOST  1024

struct lane {
	_Alignas(64) _Atomic uint64_t words[N_WORDS];
};

static struct lane lanes[N_LANES];
static _Atomic int64_t n_long; /* pages in the last sets of all lanes */
/* Bits of lanes: set after a run is put there, cleared before a lane is emptied. */
static _Atomic uint64_t holding[N_LANES / BITS];

PIN_WRITTEN_FIRST static uint32_t home = NONE; /* the lane of a process that has one thread */
extern char __libc_single_threaded __attribute__((weak));

static uint32_t lane_here(void)
{
#ifdef PIN_LANES_BY_THREAD /* as on a machine with many processors */
	static _Atomic uint32_t n_threads;
	static __thread uint32_t number __attribute__((tls_model("initial-exec")));

	if (!number)
		number = ++n_threads;
	(void)home;
	return (number - 1) % N_LANES;
#else
	if (!(&__libc_single_threaded && __libc_single_threaded))
		return pin_os_processor() % N_LANES;
	if (PIN_UNLIKELY(home == NONE))
		home = pin_os_processor() % N_LANES;
	return home;
#endif
}

/*
 * The memory node of the processor, not of the lane: that of a process with one thread stays
 * when the thread moves. Found out once, unless the thread has left it since.
 */
static uint32_t node_here(void)
{
	static _Atomic uint8_t nodes[N_LANES]; /* plus one */
	uint32_t processor = pin_os_processor() % N_LANES, node = nodes[processor];

	if (PIN_UNLIKELY(!node)) {
		node = pin_os_node() % PIN_NODES + 1;
		if (pin_os_processor() % N_LANES == processor)
			nodes[processor] = (uint8_t)node;
	}
	return node - 1;
}

/* --- words ---------------------------------------------------------------------------- */

/* A run: its first page in the upper half, and its pages. */
static uint64_t word_of(uint32_t page, uint32_t n_pages)
{
	return (uint64_t)page << 32 | n_pages;
}

static uint32_t page_of(uint64_t word)
{
	return (uint32_t)(word >> 32);
}

static uint32_t pages_of(uint64_t word)
{
	return (uint32_t)word;
}

/* A run has got into a lane, or out of it. */
static inline void count_long(uint32_t n_pages, int sign)
{
	if (PIN_UNLIKELY(n_pages > SHORT_MOST))
		atomic_fetch_add_explicit(&n_long, sign * (int64_t)n_pages,
					  memory_order_relaxed);
}

static bool swap(_Atomic uint64_t *at, uint64_t from, uint64_t to)
{
	return atomic_compare_exchange_strong_explicit(at, &from, to, memory_order_seq_cst,
						       memory_order_relaxed);
}

/* The first word of the set. Four sets are for a doubling, the other four for the next one. */
static unsigned set_of(uint32_t n_pages)
{
	unsigned shift = (31u ^ (unsigned)__builtin_clz(n_pages | SETS)) - 2;

	if (PIN_UNLIKELY(n_pages > SHORT_MOST))
		return LONG_SET;
	return ((n_pages >> shift) + 4 * (shift - 1)) % SETS * WAYS;
}

static void note_holding(uint32_t lane)
{
	_Atomic uint64_t *bits = &holding[lane / BITS];

	/* After the run is there: who clears the bit later sees the run. */
	if (PIN_UNLIKELY(
		    !(atomic_load_explicit(bits, memory_order_seq_cst) >> lane % BITS & 1)))
		atomic_fetch_or_explicit(bits, UINT64_C(1) << lane % BITS,
					 memory_order_seq_cst);
}

static bool put(uint32_t lane, uint64_t run)
{
	_Atomic uint64_t *words = &lanes[lane].words[set_of(pages_of(run))];

	for (unsigned i = 0; i < WAYS; i++) {
		if (!atomic_load_explicit(&words[i], memory_order_relaxed) &&
		    swap(&words[i], 0, run)) {
			count_long(pages_of(run), 1);
			note_holding(lane);
			return true;
		}
	}
	return false;
}

/* The shortest run of a set that is long enough, and not too long. */
static inline uint64_t find(_Atomic uint64_t *words, const struct pin_run_need *need,
			    _Atomic uint64_t **at)
{
	uint32_t most = need->n_spare, alignment = need->alignment, more;
	uint64_t word, found = 0;

	for (unsigned i = 0; i < WAYS; i++) {
		word = atomic_load_explicit(&words[i], memory_order_relaxed);
		more = pages_of(word) - need->n_pages;
		if (more > most)
			continue;
		if (PIN_UNLIKELY(alignment > 1) &&
		    ((pin_pages.base >> PIN_UNIT_SHIFT) + page_of(word)) & (alignment - 1))
			continue;
		found = word;
		*at = &words[i];
		if (!more)
			break;
		most = more - 1;
	}
	return found;
}

/* A run that is long enough, and not too long. 0 if there is none. */
static uint64_t take(uint32_t lane, const struct pin_run_need *need)
{
	_Atomic uint64_t *words = lanes[lane].words, *at;
	unsigned set = set_of(need->n_pages), next;
	uint64_t found = find(&words[set], need, &at);

	if (!found && need->n_spare) {
		next = set_of(need->n_pages + need->n_spare);
		found = next == set ? 0 : find(&words[next], need, &at);
	}
	if (!found || !swap(at, found, 0))
		return 0;
	count_long(pages_of(found), -1);
	return found;
}

/* --- lanes and the map ------------------------------------------------------------------ */

/* Gives half of a full set to the map, and puts a run there. */
static PIN_COLD void give_half(uint32_t lane, uint64_t run)
{
	static __thread unsigned turn __attribute__((tls_model("initial-exec")));
	_Atomic uint64_t *words = &lanes[lane].words[set_of(pages_of(run))];
	uint64_t word, given = run;

	pin_mutex_lock(&pin_map.lock);
	for (unsigned i = 0; i < WAYS / 2; i++, run = 0) {
		word = atomic_exchange_explicit(&words[turn++ % WAYS], run,
						memory_order_seq_cst);
		count_long(pages_of(word), -1);
		if (word)
			pin_map_give(page_of(word), pages_of(word));
	}
	pin_mutex_unlock(&pin_map.lock);
	count_long(pages_of(given), 1);
	/* Another thread may have emptied the lane since it was full. */
	note_holding(lane);
}

void pin_run_give(uint32_t page, uint32_t n_pages)
{
	uint32_t lane = lane_here();

	PIN_ASSERT(n_pages);
	pin_page_set_state(page, PIN_STATE_NONE);
	if (PIN_UNLIKELY(n_pages > LONG_MOST)) {
		pin_mutex_lock(&pin_map.lock);
		pin_map_give(page, n_pages);
		pin_mutex_unlock(&pin_map.lock);
	} else if (PIN_UNLIKELY(!put(lane, word_of(page, n_pages)))) {
		give_half(lane, word_of(page, n_pages));
	}
}

/* Gives the locked map a run, if that is still there. */
static void give_word(_Atomic uint64_t *at, uint64_t run)
{
	if (!run || !swap(at, run, 0))
		return;
	count_long(pages_of(run), -1);
	pin_map_give(page_of(run), pages_of(run));
}

static void give_words(_Atomic uint64_t *words, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		give_word(&words[i], atomic_load_explicit(&words[i], memory_order_seq_cst));
}

/* The lanes that hold runs, of those from this one on; N_LANES if there are none. */
static uint32_t next_holding(uint32_t lane)
{
	uint64_t bits;

	for (; lane < N_LANES; lane = (lane / BITS + 1) * BITS) {
		bits = atomic_load_explicit(&holding[lane / BITS], memory_order_seq_cst) &
		       UINT64_MAX << lane % BITS;
		if (bits)
			return lane / BITS * BITS + (uint32_t)__builtin_ctzll(bits);
	}
	return N_LANES;
}

size_t pin_lanes_hold(void)
{
	size_t n = 0;

	for (uint32_t lane = next_holding(0); lane < N_LANES; lane = next_holding(lane + 1))
		for (unsigned i = 0; i < N_WORDS; i++)
			n += pages_of(atomic_load_explicit(&lanes[lane].words[i],
							   memory_order_relaxed));
	return n;
}

/*
 * Shares of what was ever touched: what may be new before lanes are looked at once more, and
 * what they may hold then. With less at hand threads take each other's runs, which are in the
 * caches of other processors: 64 to 256 KiB took 1.6 times as long in eight threads.
 */
#define SHARE_NEW  256
#define SHARE_HELD 16

/* Under the map's lock: pages that may be touched, and that lanes are to give before a look. */
static size_t touch_most;
static int64_t n_due;

/*
 * Whether memory may be touched that nobody has touched, without what lanes hold. What they
 * hold is added up seldom, because that is work for each lane: if it is too much, once they
 * have given what is too much.
 */
static bool may_touch(uint32_t n_pages)
{
	size_t n_touched = pin_map_touched();

	if (n_touched + n_pages < touch_most)
		return true;
	if (n_pages > SHORT_MOST || n_due > 0)
		return false;
	n_due = (int64_t)pin_lanes_hold() - (int64_t)(n_touched / SHARE_HELD);
	if (n_due > 0)
		return false;
	touch_most = n_touched + n_touched / SHARE_NEW + (size_t)-n_due / 4;
	return true;
}

/*
 * Gives the locked map what the next lane holds that holds any, from *lane on. False if none
 * does. Others may want the lock: it is given up between two lanes.
 */
static bool empty_next(uint32_t *next)
{
	uint32_t lane = next_holding(*next);

	if (lane == N_LANES)
		return false;
	*next = lane + 1;
	pin_mutex_unlock(&pin_map.lock);
	pin_mutex_lock(&pin_map.lock);
	n_due += (int64_t)pin_map.n_used;
	atomic_fetch_and_explicit(&holding[lane / BITS], ~(UINT64_C(1) << lane % BITS),
				  memory_order_seq_cst);
	give_words(lanes[lane].words, N_WORDS);
	n_due -= (int64_t)pin_map.n_used;
	return true;
}

void pin_run_lock(uint32_t page)
{
	_Atomic uint64_t *words = lanes[lane_here()].words;
	uint32_t end = page + pin_page(page)->length;
	uint64_t word;

	pin_mutex_lock(&pin_map.lock);
	for (unsigned i = 0; i < N_WORDS; i++) {
		word = atomic_load_explicit(&words[i], memory_order_relaxed);
		if (word && (page_of(word) == end || page_of(word) + pages_of(word) == page))
			give_word(&words[i], word);
	}
}

/* --- requests --------------------------------------------------------------------------- */

/* Used memory of the locked map, which gets what lanes hold until it has as much. */
static uint32_t take_from_lanes(const struct pin_run_need *need, size_t *n_used)
{
	uint32_t lane = 0, page;

	do
		page = pin_map_take_used(need, n_used);
	while (!page && empty_next(&lane));
	touch_most = page ? 0 : pin_map_touched() + pin_map_touched() / SHARE_NEW;
	n_due = page ? n_due : 0;
	return page;
}

/* What lanes hold of long runs, without a merge, is at most this share of what was touched. */
#define SHARE_OF_LONG 16

static void give_long(void)
{
	give_words(&lanes[lane_here()].words[LONG_SET], WAYS);
	if (n_long * SHARE_OF_LONG <= (int64_t)pin_map_touched())
		return;
	for (uint32_t lane = next_holding(0); lane < N_LANES; lane = next_holding(lane + 1))
		give_words(&lanes[lane].words[LONG_SET], WAYS);
}

static uint32_t take_from_map(struct pin_run_need *need, size_t *n_used)
{
	uint32_t page;

	if (!need->only)
		need->node = node_here();
	pin_mutex_lock(&pin_map.lock);
	if (need->n_pages > SHORT_MOST)
		give_long();
	page = pin_map_take_used(need, n_used);
	if (!page && !may_touch(need->n_pages))
		page = take_from_lanes(need, n_used);
	if (!page)
		page = pin_map_take_new(need, n_used);
	/* There is no more memory, or this request hesitates. */
	need->any = !page && !need->only && need->way != PIN_WAY_HESITATES;
	if (PIN_UNLIKELY(!page))
		page = take_from_lanes(need, n_used);
	pin_mutex_unlock(&pin_map.lock);
	if (page)
		pin_page_set_state(page, PIN_STATE_TAKEN);
	return page;
}

uint32_t pin_run_take(struct pin_run_need *need, size_t *n_used)
{
	uint64_t run = need->n_pages <= LONG_MOST && !need->only ? take(lane_here(), need) : 0;
	uint32_t page;

	if (PIN_UNLIKELY(!run))
		return take_from_map(need, n_used);
	page = page_of(run);
	need->n_pages = pages_of(run);
	*n_used = (size_t)need->n_pages << PIN_UNIT_SHIFT;
	pin_page_set_state(page, PIN_STATE_TAKEN);
	return page;
}
