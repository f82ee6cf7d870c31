/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/sites.h"
#include "allocator/hooks.h"
#include "allocator/reserve.h"

#include <stdatomic.h>
#include <string.h>

/* A power of two, at least twice the number of sites, so that searches are short. */
#define SLOTS (2 * PIN_SITES)

PIN_WRITTEN_FIRST _Atomic uint64_t pin_sites_n_peaks;
PIN_WRITTEN_FIRST struct pin_mutex pin_sites_lock = {.rank = PIN_RANK_SITES};
struct pin_mutex pin_loader_lock = {.rank = PIN_RANK_LOADER};

/*
 * Protected by the lock, except n_sites, which is stored when a site is complete. Site 0,
 * which is not in the table, stands for all stacks that find no room.
 */
PIN_WRITTEN_FIRST static struct pin_table sites = PIN_TABLE(struct pin_site, PIN_SITES, 0);
static struct pin_site others;
static uint16_t slots[SLOTS]; /* 0 if unused, or the number of a site */
PIN_WRITTEN_FIRST static _Atomic size_t n_sites = 1;

_Static_assert(PIN_SITES <= UINT16_MAX, "a slot holds the number of a site");

struct pin_site *pin_sites_get(uint32_t number)
{
	return number ? pin_table_at(&sites, struct pin_site, number) : &others;
}

/* FNV-1a, over whole addresses. */
static uint32_t hash_of(void *const *frames, uint32_t depth)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (uint32_t i = 0; i < depth; i++)
		hash = (hash ^ (uintptr_t)frames[i]) * 0x100000001b3;
	return (uint32_t)(hash ^ hash >> 32);
}

static struct pin_site *make_site(uint16_t *slot, uint32_t hash, void *const *frames,
				  uint32_t depth)
{
	uint32_t number = (uint32_t)n_sites;
	struct pin_site *site;

	if (pin_table_ensure(&sites, number + 1))
		return &others;
	site = pin_sites_get(number);
	site->number = number;
	site->hash = hash;
	site->depth = depth;
	memcpy(site->frames, frames, depth * sizeof *frames);
	*slot = (uint16_t)number;
	atomic_store_explicit(&n_sites, number + 1, memory_order_release);
	return site;
}

/* Under the lock. */
static struct pin_site *find_site(void *const *frames, uint32_t depth)
{
	uint32_t hash = hash_of(frames, depth);

	for (uint32_t i = hash;; i++) {
		uint16_t *slot = &slots[i % SLOTS];
		struct pin_site *site = pin_sites_get(*slot);

		if (!*slot)
			return make_site(slot, hash, frames, depth);
		if (site->hash == hash && site->depth == depth &&
		    !memcmp(site->frames, frames, depth * sizeof *frames))
			return site;
	}
}

struct pin_site *pin_sites_here(void)
{
	void *frames[PIN_SITE_FRAMES];
	struct pin_site *site;
	int depth = pin_hooks.walk_stack ? pin_hooks.walk_stack(frames, PIN_SITE_FRAMES) : -1;

	pin_assert_may_wait(PIN_RANK_LOADER);
	if (depth < 0)
		return NULL;
	pin_mutex_lock(&pin_sites_lock);
	site = find_site(frames, (uint32_t)depth);
	pin_mutex_unlock(&pin_sites_lock);
	return site;
}

void pin_sites_grew(size_t n_bytes)
{
	struct pin_site *site = pin_sites_here();

	if (!site)
		return;
	pin_mutex_lock(&pin_sites_lock);
	site->grown_bytes += n_bytes;
	site->grown_count++;
	pin_mutex_unlock(&pin_sites_lock);
}

/*
 * Every sample changes the current amount. The amount at the peak changes only with the first
 * sample after a peak: it is the current amount before that sample.
 */
void pin_sites_add_held(struct pin_site *site, struct pin_held more)
{
	uint64_t peaks = atomic_load_explicit(&pin_sites_n_peaks, memory_order_acquire);

	pin_mutex_lock(&pin_sites_lock);
	if (site->peaks != peaks)
		site->at_peak = site->now;
	site->peaks = peaks;
	site->now.bytes += more.bytes;
	site->now.count += more.count;
	pin_mutex_unlock(&pin_sites_lock);
}

struct pin_held pin_site_at_peak(const struct pin_site *site)
{
	return site->peaks == atomic_load(&pin_sites_n_peaks) ? site->at_peak : site->now;
}

void pin_sites_begin_anew(void)
{
	for (uint32_t i = 0; i < n_sites; i++)
		pin_sites_get(i)->grown_bytes = pin_sites_get(i)->grown_count = 0;
	pin_sites_note_peak();
}

static double amount_of(const struct pin_site *site, bool held)
{
	return held ? pin_site_at_peak(site).bytes : (double)site->grown_bytes;
}

size_t pin_sites_largest(bool held, struct pin_site **out, size_t n)
{
	size_t total = atomic_load_explicit(&n_sites, memory_order_acquire), used = 0, at;

	for (uint32_t i = 0; i < total; i++) {
		double bytes = amount_of(pin_sites_get(i), held);

		for (at = used; at && amount_of(out[at - 1], held) < bytes; at--)
			if (at < n)
				out[at] = out[at - 1];
		if (at >= n || bytes < 1)
			continue;
		out[at] = pin_sites_get(i);
		used += used < n;
	}
	return used;
}
