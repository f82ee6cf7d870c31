/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/sample.h"
#include "allocator/classes.h"
#include "allocator/large.h"
#include "allocator/locks.h"
#include "allocator/log.h"
#include "allocator/math.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/table.h"

/* A block in use that was picked; in a table by its address. */
struct sample {
	const void *block; /* NULL if the entry is unused */
	struct pin_site *site;
	struct pin_held held;
};

/* A power of two. The maximum number of blocks: three quarters of it. */
#define LG_SLOTS 21
#define SLOTS	 ((size_t)1 << LG_SLOTS)
#define FULL	 (SLOTS / 4 * 3)

static struct pin_table samples, counts;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static size_t n_used; /* under the lock */
static bool is_on;

/* Bytes until the calling thread's next sample, and what it draws them from: 0 at first. */
static __thread int64_t left __attribute__((tls_model("initial-exec")));
static __thread uint64_t random_state __attribute__((tls_model("initial-exec")));

void pin_sample_lock(void)
{
	pin_mutex_lock(&table_lock);
}

void pin_sample_unlock(void)
{
	pin_mutex_unlock(&table_lock);
}

static struct sample *slot_at(size_t i)
{
	return pin_table_at(&samples, struct sample, i % SLOTS);
}

static size_t home_slot(const void *block)
{
	return (size_t)(((uintptr_t)block >> 4) * 0x9e3779b97f4a7c15 >> (64 - LG_SLOTS));
}

/* How many blocks of a page are in the table: most frees need not look there. */
static _Atomic uint16_t *count_of(const void *block)
{
	return pin_table_at(&counts, _Atomic uint16_t, pin_page_of(block));
}

static bool may_be_noted(const void *block)
{
	return pin_page_of(block) < counts.committed &&
	       atomic_load_explicit(count_of(block), memory_order_relaxed);
}

/* The slot of a block, or the unused one where it belongs. Caller holds the lock. */
static size_t find_slot(const void *block)
{
	size_t i = home_slot(block);

	while (slot_at(i)->block && slot_at(i)->block != block)
		i++;
	return i;
}

/*
 * Removes an entry, and moves back entries that were behind it only because their own slot
 * was taken. Caller holds the lock.
 */
static void remove_entry(size_t hole)
{
	for (size_t i = hole + 1; slot_at(i)->block; i++) {
		size_t home = home_slot(slot_at(i)->block);

		if (((i - home) & (SLOTS - 1)) >= ((i - hole) & (SLOTS - 1))) {
			*slot_at(hole) = *slot_at(i);
			hole = i;
		}
	}
	slot_at(hole)->block = NULL;
	n_used--;
}

/* Returns false if the table is full: then neither the block nor its release is counted. */
static bool note(const struct sample *sample)
{
	bool fits;

	pin_mutex_lock(&table_lock);
	fits = n_used < FULL && !pin_table_ensure(&counts, pin_page_of(sample->block) + 1);
	if (fits) {
		*slot_at(find_slot(sample->block)) = *sample;
		n_used++;
		atomic_fetch_add_explicit(count_of(sample->block), 1, memory_order_relaxed);
	}
	pin_mutex_unlock(&table_lock);
	return fits;
}

static bool forget(const void *block, struct sample *sample)
{
	size_t at;

	pin_mutex_lock(&table_lock);
	at = find_slot(block);
	*sample = *slot_at(at);
	if (sample->block) {
		remove_entry(at);
		atomic_fetch_sub_explicit(count_of(block), 1, memory_order_relaxed);
	}
	pin_mutex_unlock(&table_lock);
	return sample->block;
}

/* What one sample stands for. */
static struct pin_held weight(size_t n_bytes, size_t n_usable)
{
	double count = 1 / (1 - pin_exp(-(double)n_usable / (double)pin_options.sample));

	return (struct pin_held){.bytes = count * (double)n_bytes, .count = count};
}

/* From 0, excluded, to 1. xorshift64*. */
static double draw(void)
{
	uint64_t x = random_state;

	if (!x)
		x = (uintptr_t)&random_state * 0x9e3779b97f4a7c15 ^ pin_os_now_ns();
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	random_state = x ? x : 1;
	return (double)((x * 0x2545f4914f6cdd1d >> 11) + 1) / (double)(UINT64_C(1) << 53);
}

static int64_t next_distance(void)
{
	double bytes = -pin_log(draw()) * (double)pin_options.sample;

	return bytes < 1e18 ? (int64_t)bytes + 1 : INT64_MAX;
}

static PIN_COLD void pick(void *p, size_t n_bytes, size_t n_usable)
{
	struct sample sample = {p, pin_sites_here(), weight(n_bytes, n_usable)};

	left = next_distance();
	if (sample.site && note(&sample))
		pin_sites_add_held(sample.site, sample.held);
}

static size_t usable_of(const void *p)
{
	unsigned class = pin_kind_of(p) - 1u;

	return class < PIN_CLASSES ? pin_class_sizes[class] : pin_large_usable(p);
}

void pin_sample_new(void *p, size_t n_bytes)
{
	size_t n_usable;

	if (!is_on)
		return;
	n_usable = usable_of(p);
	if (!random_state)
		left = next_distance();
	left -= (int64_t)n_usable;
	if (PIN_UNLIKELY(left < 0))
		pick(p, n_usable > PIN_SMALL_MOST ? n_bytes : n_usable, n_usable);
}

struct pin_sample_lifted pin_sample_lift(void *p)
{
	struct sample sample;

	if (!is_on || !may_be_noted(p) || !forget(p, &sample))
		return (struct pin_sample_lifted){.block = p};
	return (struct pin_sample_lifted){p, sample.site, sample.held};
}

void pin_sample_free_lifted(const struct pin_sample_lifted *lifted)
{
	struct pin_held less = {-lifted->held.bytes, -lifted->held.count};

	if (lifted->site)
		pin_sites_add_held(lifted->site, less);
}

void pin_sample_put_back(const struct pin_sample_lifted *lifted)
{
	struct sample sample = {lifted->block, lifted->site, lifted->held};

	if (lifted->site && !note(&sample))
		pin_sample_free_lifted(lifted);
}

void pin_sample_freed(void *p)
{
	struct pin_sample_lifted lifted = pin_sample_lift(p);

	pin_sample_free_lifted(&lifted);
}

void pin_sample_start(void)
{
	if (!pin_options.sample)
		return;
	is_on = !pin_table_init(&samples, sizeof(struct sample), SLOTS) &&
		!pin_table_ensure(&samples, SLOTS) &&
		!pin_table_init(&counts, sizeof(uint16_t), pin_pages.records ? UINT32_MAX : 0);
	if (!is_on)
		pin_warn("PINALLOC_SAMPLE has no effect: there is no memory for its table; "
			 "raise ulimit -v");
}

bool pin_sample_is_on(void)
{
	return is_on;
}
