/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/keys.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/region.h"
#include "regpool/budget.h"
#include "regpool/evict.h"
#include "regpool/node.h"
#include "regpool/pool.h"
#include "regpool/verify.h"
#include "regpool/watch.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>

/*
 * What libibverbs keeps behind the public struct ibv_mr (struct verbs_mr in
 * rdma-core 44, libibverbs/driver.h) and may always be read.
 */
#define VERBS_MR_BYTES 56

/* An errno value no registration has. */
#define TOO_LARGE EFBIG

static _Atomic uint32_t releases;  /* MRs given back, for FAILED entries */
static _Atomic uint32_t clock_now; /* ticks at each registration, for eviction */

uint32_t pin_keys_clock(void)
{
	return atomic_load(&clock_now);
}

void pin_keys_released(void)
{
	atomic_fetch_add(&releases, 1);
}

/* Ends a BUSY phase. */
static void settle(struct pin_entry *entry, uint32_t state)
{
	atomic_store_explicit(&entry->state, state, memory_order_release);
	pin_os_wake(&entry->state);
}

static void say_over_limit(const struct pin_domain *domain, size_t length, size_t limit)
{
	pin_warn_once(
		"cannot pin a region of %s on %s: the heap's share is limited to %s by %s; "
		"until it is raised such requests go to libibverbs",
		PIN_SIZE(length), domain->device, PIN_SIZE(limit),
		limit == pin_options.max_pinned ? "PINALLOC_MAX_PINNED" : "ulimit -l");
}

static void say_unpinned(const struct pin_domain *domain, size_t length, int error)
{
	size_t limit = pin_budget_limit();

	if (error == TOO_LARGE)
		pin_warn_once("cannot pin a region of %s on %s: its memory regions end at %s; "
			      "keep growth below it with PINALLOC_GROW, or such requests go "
			      "to libibverbs",
			      PIN_SIZE(length), domain->device, PIN_SIZE(domain->max_mr_size));
	else if (limit == SIZE_MAX || !pin_ibverbs_out_of_room(error))
		pin_warn_once(
			"cannot pin a region of %s on %s: %s; such requests go to libibverbs",
			PIN_SIZE(length), domain->device, strerrordesc_np(error));
	else
		say_over_limit(domain, length, limit);
}

/* One try at the real registration, within the budget. */
static struct ibv_mr *try_region(struct pin_domain *domain, unsigned access,
				 const struct pin_region *region, int *error)
{
	struct ibv_pd *pd = atomic_load(&domain->pd);
	struct ibv_mr *mr = NULL;
	bool entered;

	*error = region->length > domain->max_mr_size ? TOO_LARGE : ENOMEM;
	if (*error == TOO_LARGE || !pd || !pin_budget_take(region->length))
		return NULL;
	pin_watch_region(region);
	entered = pin_node_enter(region);
	mr = pin_ibverbs()->reg_mr_iova2(pd, (void *)region->start, region->length,
					 region->start, access);
	*error = errno;
	pin_node_leave(entered);
	if (!mr)
		pin_budget_give(region->length);
	return mr;
}

/* The real registration; where it may evict, for as long as that can help. */
static struct ibv_mr *register_region(struct pin_domain *domain, unsigned access,
				      const struct pin_region *region, bool may_evict,
				      int *error)
{
	uint64_t began = pin_os_now_ns();
	struct ibv_mr *mr;

	do {
		mr = try_region(domain, access, region, error);
	} while (!mr && pin_ibverbs_out_of_room(*error) && may_evict &&
		 pin_evict_one(region->length));
	atomic_fetch_add_explicit(&pin_pool.ns, pin_os_now_ns() - began, memory_order_relaxed);
	return mr;
}

static void note_created(struct pin_domain *domain, size_t length)
{
	atomic_fetch_add(&pin_pool.created, 1);
	atomic_fetch_add(&domain->created, 1);
	atomic_fetch_add_explicit(&clock_now, 1, memory_order_relaxed);
	pin_level_add(&pin_pool.pinned, &pin_pool.pinned_peak, length);
	pin_level_add(&domain->pinned, &domain->pinned_peak, length);
}

static void note_destroyed(struct pin_domain *domain, size_t length)
{
	atomic_fetch_add(&pin_pool.destroyed, 1);
	atomic_fetch_sub(&pin_pool.pinned, length);
	atomic_fetch_sub(&domain->pinned, length);
	pin_budget_give(length);
	pin_keys_released();
}

/* The provider allocated it with malloc, so malloc knows how much there is. */
uint32_t pin_keys_readable_bytes(struct ibv_mr *mr)
{
	return pin_reserve_contains(mr) ? (uint32_t)malloc_usable_size(mr) : VERBS_MR_BYTES;
}

/*
 * Registers the region of an entry this thread has made BUSY. What was released
 * is read before, so that room made meanwhile lets the next one try again.
 */
static bool fill(struct pin_domain *domain, struct pin_class *keys, uint32_t number,
		 struct pin_entry *entry, bool may_evict)
{
	struct pin_registration *registration = pin_keys_registration(keys, number);
	const struct pin_region *region = pin_region_get(number);
	uint32_t released = atomic_load(&releases);
	unsigned access = keys->access;
	struct ibv_mr *mr;
	int error;

	mr = register_region(domain, access, region, may_evict, &error);
	if (!mr) {
		atomic_fetch_add(&pin_pool.refused, 1);
		say_unpinned(domain, region->length, error);
		registration->failed_at = released;
		settle(entry, PIN_ENTRY_FAILED);
		return false;
	}
	registration->mr = mr;
	registration->access = access;
	registration->used_at = atomic_load(&clock_now);
	registration->provider_bytes = pin_keys_readable_bytes(mr);
	entry->lkey = mr->lkey;
	entry->rkey = mr->rkey;
	entry->start = region->start;
	entry->length = region->length;
	note_created(domain, region->length);
	pin_verify_registered(number);
	pin_debug("region %u registered on %s: lkey 0x%x", number, domain->device, mr->lkey);
	settle(entry, PIN_ENTRY_READY);
	return true;
}

/* Whether trying again is pointless, because nothing was released since. */
static bool failed_for_good(const struct pin_registration *registration, uint32_t state)
{
	return (state & PIN_ENTRY_FAILED) && registration->failed_at == atomic_load(&releases);
}

/*
 * Waits for the region or registers it. Whoever fails does not try again, or it
 * could for ever.
 */
static bool make_ready(struct pin_domain *domain, struct pin_class *keys, uint32_t number,
		       struct pin_entry *entry, bool may_evict)
{
	uint32_t state = atomic_load(&entry->state);

	while (!(state & PIN_ENTRY_READY)) {
		if (state & PIN_ENTRY_BUSY) {
			pin_os_wait(&entry->state, state);
			state = atomic_load(&entry->state);
		} else if (failed_for_good(pin_keys_registration(keys, number), state)) {
			return false;
		} else if (atomic_compare_exchange_weak(&entry->state, &state,
							PIN_ENTRY_BUSY)) {
			return fill(domain, keys, number, entry, may_evict);
		}
	}
	return true;
}

/* Commits both tables; each rounds up in a way of its own. */
static PIN_COLD bool make_room(struct pin_class *keys, size_t n)
{
	size_t had = atomic_load(&keys->room), both;

	if (pin_table_ensure(&keys->registrations, n) || pin_table_ensure(&keys->entries, n))
		return false;
	both = keys->registrations.committed;
	if (both > keys->entries.committed)
		both = keys->entries.committed;
	while (had < both && !atomic_compare_exchange_weak(&keys->room, &had, both))
		;
	return true;
}

/* The entry, in memory that may be touched, or NULL. */
static struct pin_entry *entry_of(struct pin_class *keys, uint32_t number)
{
	if (PIN_UNLIKELY(number >= keys->room) && !make_room(keys, (size_t)number + 1))
		return NULL;
	return pin_table_at(&keys->entries, struct pin_entry, number);
}

/* Not written when it is right already: the line is every thread's. */
static void touch(struct pin_registration *registration)
{
	uint32_t now = atomic_load_explicit(&clock_now, memory_order_relaxed);

	if (atomic_load_explicit(&registration->used_at, memory_order_relaxed) != now)
		atomic_store_explicit(&registration->used_at, now, memory_order_relaxed);
}

bool pin_keys_prepare(struct pin_domain *domain, struct pin_class *keys, uint32_t number,
		      bool may_evict)
{
	struct pin_entry *entry = entry_of(keys, number);

	if (!entry || !make_ready(domain, keys, number, entry, may_evict))
		return false;
	touch(pin_keys_registration(keys, number));
	return true;
}

struct pin_registration *pin_keys_use(struct pin_domain *domain, struct pin_class *keys,
				      uint32_t number, struct pin_user_count **user)
{
	struct pin_entry *entry = entry_of(keys, number);
	struct pin_registration *registration;
	struct pin_user_count *count;

	if (PIN_UNLIKELY(!entry))
		return NULL;
	registration = pin_keys_registration(keys, number);
	count = &registration->users[pin_lane()];
	/* Both sequentially consistent: claim() does the same the other way round. */
	atomic_fetch_add(&count->n, 1);
	while (PIN_UNLIKELY(!(atomic_load(&entry->state) & PIN_ENTRY_READY))) {
		if (!make_ready(domain, keys, number, entry, true)) {
			pin_keys_put(count);
			return NULL;
		}
	}
	touch(registration);
	*user = count;
	return registration;
}

struct pin_entry *pin_keys_hold(struct pin_domain *domain, struct pin_class *keys,
				uint32_t number)
{
	struct pin_entry *entry = entry_of(keys, number);
	uint32_t state;

	do {
		if (!pin_keys_prepare(domain, keys, number, true))
			return NULL;
		state = PIN_ENTRY_READY;
	} while (!atomic_compare_exchange_strong(&entry->state, &state,
						 PIN_ENTRY_READY | PIN_ENTRY_HELD) &&
		 state != (PIN_ENTRY_READY | PIN_ENTRY_HELD));
	return entry;
}

void pin_keys_put(struct pin_user_count *user)
{
	atomic_fetch_sub_explicit(&user->n, 1, memory_order_release);
}

static bool has_users(struct pin_class *keys, uint32_t number)
{
	const struct pin_registration *registration = pin_keys_registration(keys, number);

	for (int i = 0; i < PIN_LANES; i++)
		if (atomic_load(&registration->users[i].n))
			return true;
	return false;
}

/*
 * Turns a READY entry to BUSY, so that it can be deregistered; fails when the word
 * is another by now, or there are users.
 */
static bool claim(struct pin_class *keys, struct pin_entry *entry, uint32_t number)
{
	uint32_t state = PIN_ENTRY_READY;

	if (!atomic_compare_exchange_strong(&entry->state, &state, PIN_ENTRY_BUSY))
		return false;
	if (!has_users(keys, number))
		return true;
	settle(entry, state);
	return false;
}

/* Deregisters what this thread has turned from READY to BUSY. */
static bool deregister(struct pin_domain *domain, struct pin_class *keys, uint32_t number,
		       uint32_t before)
{
	struct pin_entry *entry = pin_keys_at(keys, number);
	int error;

	pin_verify_deregister(number);
	error = pin_ibverbs()->dereg_mr(pin_keys_registration(keys, number)->mr);
	if (error) {
		pin_warn("region %u on %s cannot be deregistered: %s", number, domain->device,
			 strerrordesc_np(error));
		settle(entry, before);
		return false;
	}
	note_destroyed(domain, pin_region_get(number)->length);
	settle(entry, 0);
	return true;
}

bool pin_keys_is_idle(struct pin_class *keys, uint32_t number)
{
	const struct pin_entry *entry = pin_keys_at(keys, number);

	return entry && atomic_load(&entry->state) == PIN_ENTRY_READY &&
	       !has_users(keys, number);
}

int pin_keys_release_idle(struct pin_domain *domain, struct pin_class *keys, uint32_t number)
{
	if (!claim(keys, pin_keys_at(keys, number), number))
		return -EBUSY;
	return deregister(domain, keys, number, PIN_ENTRY_READY) ? 0 : -EIO;
}

bool pin_keys_in_use(struct pin_class *keys)
{
	uint32_t n = pin_region_count();
	struct pin_entry *entry;

	for (uint32_t i = 0; i < n && (entry = pin_keys_at(keys, i)); i++)
		if (has_users(keys, i))
			return true;
	return false;
}

/* With users it stays, but is not held any longer. */
static void let_stay(struct pin_entry *entry, uint32_t state)
{
	settle(entry, state & ~PIN_ENTRY_HELD);
}

static void clear_one(struct pin_domain *domain, struct pin_class *keys,
		      struct pin_entry *entry, uint32_t number, enum pin_clear what)
{
	uint32_t state = atomic_load(&entry->state);

	while (state & (PIN_ENTRY_READY | PIN_ENTRY_BUSY)) {
		if (state & PIN_ENTRY_BUSY) {
			pin_os_wait(&entry->state, state);
			state = atomic_load(&entry->state);
		} else if (atomic_compare_exchange_weak(&entry->state, &state,
							PIN_ENTRY_BUSY)) {
			if (what == PIN_CLEAR_IDLE && has_users(keys, number))
				let_stay(entry, state);
			else
				deregister(domain, keys, number, state);
			return;
		}
	}
	if (state & PIN_ENTRY_FAILED)
		atomic_compare_exchange_strong(&entry->state, &state, 0);
}

void pin_keys_clear(struct pin_domain *domain, struct pin_class *keys, enum pin_clear what)
{
	uint32_t n = pin_region_count();
	struct pin_entry *entry;

	for (uint32_t i = 0; i < n && (entry = pin_keys_at(keys, i)); i++)
		clear_one(domain, keys, entry, i, what);
}

/* What the word was. Whoever has it BUSY comes first, and writes it once more. */
static uint32_t empty(struct pin_entry *entry)
{
	uint32_t state = atomic_load(&entry->state);

	for (;;) {
		if (state & PIN_ENTRY_BUSY) {
			pin_os_wait(&entry->state, state);
			state = atomic_load(&entry->state);
		} else if (atomic_compare_exchange_weak(&entry->state, &state, 0)) {
			return state;
		}
	}
}

void pin_keys_forget(struct pin_domain *domain, struct pin_class *keys)
{
	uint32_t n = pin_region_count();
	struct pin_entry *entry;

	for (uint32_t i = 0; i < n && (entry = pin_keys_at(keys, i)); i++) {
		struct pin_user_count *users = pin_keys_registration(keys, i)->users;

		if (empty(entry) & PIN_ENTRY_READY) {
			note_destroyed(domain, pin_region_get(i)->length);
			pin_verify_gone(i);
		}
		for (int lane = 0; lane < PIN_LANES; lane++)
			atomic_store(&users[lane].n, 0);
	}
}
