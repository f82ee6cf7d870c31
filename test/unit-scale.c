/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A heap of 1 TiB, of regions without memory behind them: each address leads to its
 * region and to keys an adapter takes, the figures add up, and making room looks at no
 * more regions for each than it would in a small heap.
 */
#include <config.h>

#include "regpool/evict.h"
#include "regpool/keys.h"
#include "regpool/pool.h"
#include "test/regions.h"
#include "test/tap.h"

#include <errno.h>

#define EVICTIONS 512u

static size_t half; /* of the heap, in bytes; one of it in large steps, one in small */
static size_t n_large, n_small;
static _Atomic size_t looked_at;

/* The linker puts this in front of the library's own. */
const struct pin_region *__real_pin_region_get(uint32_t i);
const struct pin_region *__wrap_pin_region_get(uint32_t i);

const struct pin_region *__wrap_pin_region_get(uint32_t i)
{
	looked_at++;
	return __real_pin_region_get(i);
}

#define LARGE (64 * PIN_MIB)
#define SMALL PIN_GRANULE

static size_t step_of(uint32_t number)
{
	return number < n_large ? LARGE : SMALL;
}

static char *start_of(uint32_t number)
{
	size_t offset = number < n_large ? number * LARGE : half + (number - n_large) * SMALL;

	return (char *)pin_reserve.base + offset;
}

static void publish(void)
{
	/* Sanitizers may leave less address space. */
	size_t whole = pin_reserve.size < PIN_TIB ? pin_reserve.size : PIN_TIB;

	half = PIN_ALIGN_DOWN(whole / 2, LARGE);
	n_large = half / LARGE;
	n_small = half / SMALL;
	for (uint32_t i = 0; i < n_large + n_small; i++)
		pin_region_publish((uintptr_t)start_of(i), step_of(i));
	ok(pin_region_count() == n_large + n_small, "%zu regions are published",
	   n_large + n_small);
	ok(pin_region_bytes() == 2 * half, "of %zu GiB together", 2 * half / PIN_GIB);
}

static bool is_found(uint32_t number)
{
	char *start = start_of(number);
	size_t length = step_of(number);

	return pin_region_find(start, length) == number &&
	       pin_region_find(start + length - 1, 1) == number &&
	       pin_region_find(start + length - 1, 2) == PIN_REGION_NONE;
}

static void find(void)
{
	uint32_t n = pin_region_count(), wrong = 0;

	for (uint32_t i = 0; i < n; i++)
		wrong += !is_found(i);
	ok(!wrong, "each is found from its first byte to its last, and no further");
	ok(pin_region_find((char *)pin_reserve.base + 2 * half, 1) == PIN_REGION_NONE,
	   "behind the last there is none");
}

/* All the large ones, and of the small ones some all over. */
static uint32_t stride(uint32_t number)
{
	return number < n_large ? 1 : 61;
}

static void look_up_all(void)
{
	uint32_t n = pin_region_count(), asked = 0, wrong = 0;
	struct ibv_pd *pd = new_pd();
	struct keys keys;

	for (uint32_t i = 0; i < n; i += stride(i), asked++) {
		char *p = start_of(i) + i * 4099ul % (step_of(i) - 64);

		wrong += look_up(pd, p, 64, &keys) ||
			 !fake_keys_reach(keys.lkey, keys.rkey, pd, start_of(i), step_of(i));
	}
	ok(!wrong, "keys of %u of them reach them as a whole", asked);
	ok(pin_pool.created == asked && fake_verbs.live == asked, "each is registered once");
	ok(look_up(pd, start_of(n - 1) + SMALL - 1, 2, &keys) == -ENOENT,
	   "over the end of the heap there are none");
	ok(!pin_evict_one(0), "what was looked up never gives way");
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live && !pin_pool.pinned,
	   "the PD takes all with it");
}

static bool is_registered(uint32_t number)
{
	struct pin_class *keys = &pin_domain_at(0)->classes[PIN_CLASS_PLAIN];

	return atomic_load(&pin_keys_at(keys, number)->state) & PIN_ENTRY_READY;
}

/* Registered in another order than that of their numbers, and idle at once. */
static uint32_t turn(uint32_t i)
{
	return i * 5u % (uint32_t)n_large;
}

static void make_room(void)
{
	struct ibv_pd *pd = new_pd();
	unsigned wrong = 0, n = EVICTIONS < n_large / 2 ? EVICTIONS : (unsigned)n_large / 2;
	size_t before;

	for (uint32_t i = 0; i < n_large; i++)
		pin_mr_deregister(reg(pd, start_of(turn(i)), 64, RIGHTS));
	ok(fake_verbs.live == n_large, "%zu regions are registered and idle", n_large);
	before = looked_at;
	for (uint32_t i = 0; i < n; i++)
		wrong += !is_registered(turn(i)) || !pin_evict_one(0) || is_registered(turn(i));
	ok(!wrong, "the %u that were used longest ago give way, in that order", n);
	ok(looked_at - before < 4 * n_large, "for which %.1f regions are looked at each",
	   (double)(looked_at - before) / n);
	pin_mr_deregister(reg(pd, start_of(turn(n)), 64, RIGHTS));
	ok(pin_evict_one(0) && is_registered(turn(n)) && !is_registered(turn(n + 1)),
	   "one that is used again does not, though it was next");
	ok(!pin_domain_dealloc(pd) && !fake_verbs.live, "and the PD goes");
}

int main(void)
{
	ok(lazy_pool(), "initialised");
	publish();
	find();
	look_up_all();
	make_room();
	return done_testing();
}
