/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/keys.h"
#include "allocator/log.h"
#include "allocator/os.h"
#include "allocator/span.h"
#include "regpool/choice.h"
#include "regpool/evict.h"
#include "regpool/pool.h"
#include "regpool/register.h"
#include "regpool/verify.h"

/*
 * Registers a range for a place that is BUSY and this thread's. Without `mr` the place is free
 * again. Returns whether it is found.
 */
static bool fill(struct pin_class *keys, uint32_t number, struct ibv_mr *mr)
{
	struct pin_registration *registration = pin_place_registration(keys, number);
	struct pin_entry *entry = pin_place(keys, number);
	bool found;

	if (!mr) {
		pthread_mutex_lock(&keys->lock);
		pin_place_free(keys, number);
		pthread_mutex_unlock(&keys->lock);
		return false;
	}
	pin_verify_registered(pin_place_range(entry));
	registration->mr = mr;
	registration->used_at = atomic_fetch_add(&pin_evict_clock, 1) + 1;
	registration->provider_bytes = pin_register_readable_bytes(mr);
	entry->lkey = mr->lkey;
	entry->rkey = mr->rkey;
	pthread_mutex_lock(&keys->lock);
	pin_place_publish(keys, number, PIN_ENTRY_READY);
	found = !registration->is_stale;
	pthread_mutex_unlock(&keys->lock);
	return found;
}

/* Keeps the place's range what is registered: others wait for what it says. */
static void narrow(struct pin_class *keys, uint32_t number, struct pin_range range)
{
	pthread_mutex_lock(&keys->lock);
	pin_place_narrow(keys, number, range);
	pthread_mutex_unlock(&keys->lock);
}

/* As long as room is wanting, and it may, idle memory regions give way. */
static struct ibv_mr *register_range(struct pin_domain *domain, unsigned access,
				     struct pin_range range, bool may_evict, int *error)
{
	uint64_t began = pin_os_now_ns();
	struct ibv_mr *mr;

	do {
		mr = pin_register_range(domain, access, range, error);
	} while (!mr && may_evict && pin_register_lacks_room(*error) &&
		 pin_evict_one(pin_range_length(range)));
	atomic_fetch_add_explicit(&pin_pool.ns, pin_os_now_ns() - began, memory_order_relaxed);
	if (mr)
		pin_debug("%s at %p registered%s on %s: lkey 0x%x",
			  PIN_SIZE(pin_range_length(range)), (void *)range.start,
			  may_evict ? "" : " ahead", domain->device, mr->lkey);
	return mr;
}

/* The place's range or, where that does not fit, what is wanted of it. */
static bool register_place(struct pin_domain *domain, struct pin_class *keys, uint32_t number,
			   struct pin_range wanted, bool may_evict)
{
	struct pin_range range = pin_place_range(pin_place(keys, number));
	unsigned access = pin_class_access(domain, keys);
	struct ibv_mr *mr;
	int error;
	bool found;

	mr = register_range(domain, access, range, may_evict, &error);
	if (!mr && pin_range_length(wanted) < pin_range_length(range)) {
		range = wanted;
		narrow(keys, number, range);
		mr = register_range(domain, access, range, may_evict, &error);
	}
	if (!mr)
		pin_register_say_failed(domain, range, error);
	found = fill(keys, number, mr);
	if (mr)
		pin_places_sweep(domain, keys, range);
	return found;
}

static bool is_covered(void *keys, size_t granule)
{
	return pin_keys_covering(keys, (void *)pin_granule_start(granule)) != PIN_NO_ENTRY;
}

/* How much of a range memory regions have already. */
static size_t covered_bytes(struct pin_class *keys, struct pin_range range)
{
	size_t n_bytes = 0;

	for (uintptr_t p = range.start; p < range.end; p += PIN_GRANULE)
		n_bytes += is_covered(keys, pin_granule_of(p)) ? PIN_GRANULE : 0;
	return n_bytes;
}

/*
 * Whether a range may be registered of which others have some already. To lay memory regions
 * anew is work that must pay: no more of it is done than there was for memory that none had,
 * or for requests that got no more than they asked for.
 */
static bool pays(struct pin_class *keys, struct pin_range range)
{
	size_t again = covered_bytes(keys, range);

	if (again > keys->credit)
		return false;
	keys->credit += pin_range_length(range) - 2 * again;
	return true;
}

/*
 * What is registered for a request, with the class's lock: what lacks around it, and if it
 * crosses a border of what there is, that as well, so that the next need not.
 */
static struct pin_range choose(struct pin_class *keys, struct pin_range wanted)
{
	const struct pin_span *span = pin_span_find((void *)wanted.start, 1);
	struct pin_range tile = pin_choice_tile(span, wanted, keys->cell), range;

	if (pin_granules_reach(tile.end))
		return wanted;
	pin_choice_look(wanted, tile);
	range = pin_choice_beyond(pin_choice_across(wanted, tile, NULL, NULL), tile, span);
	if (covered_bytes(keys, wanted) && pays(keys, range))
		return range;
	range = pin_choice_across(wanted, tile, is_covered, keys);
	range = pin_choice_beyond(range, tile, span);
	keys->credit += pin_range_length(range);
	return range;
}

/* The entry that has the range, READY; NULL if none. With the class's lock. */
static struct pin_entry *found(struct pin_class *keys, const void *addr, size_t length)
{
	uint32_t number = pin_keys_covering(keys, addr);
	struct pin_entry *entry = number == PIN_NO_ENTRY ? NULL : pin_place(keys, number);

	return entry && pin_entry_covers(entry, addr, length) ? entry : NULL;
}

/* One that another thread registers, or deregisters, and has the range. With the lock. */
static struct pin_entry *under_way(struct pin_class *keys, struct pin_range range)
{
	struct pin_walk walk = pin_places_walk(keys, range);
	uint32_t number;

	while ((number = pin_places_next(keys, &walk)) != PIN_NO_ENTRY) {
		struct pin_entry *entry = pin_place(keys, number);

		if (entry->state == PIN_ENTRY_BUSY &&
		    pin_range_has(pin_place_range(entry), range))
			return entry;
	}
	return NULL;
}

static struct pin_failure *failure_at(struct pin_class *keys, struct pin_range range)
{
	return pin_table_at(&keys->failures, struct pin_failure, pin_granule_of(range.start));
}

/*
 * Whether trying is pointless, because the program has replaced pages there, or it has failed
 * for as much or less, and nothing was released since. With the lock.
 */
static bool is_hopeless(struct pin_class *keys, struct pin_range range)
{
	const struct pin_failure *failure = failure_at(keys, range);

	return pin_granules_any_replaced(range) ||
	       (pin_granule_of(range.start) < keys->failures.committed &&
		failure->released == pin_register_releases() + 1 &&
		failure->n_granules <= pin_range_length(range) >> PIN_GRANULE_SHIFT);
}

static void note_failure(struct pin_class *keys, struct pin_range range, uint32_t released)
{
	uint32_t n_granules = (uint32_t)(pin_range_length(range) >> PIN_GRANULE_SHIFT);

	pthread_mutex_lock(&keys->lock);
	if (!pin_table_ensure(&keys->failures, pin_granule_of(range.start) + 1))
		*failure_at(keys, range) = (struct pin_failure){released + 1, n_granules};
	pthread_mutex_unlock(&keys->lock);
}

enum step { HAS, HAS_NOT, REGISTER };

/* What is to be done for a range; waits for others that are at it. */
static enum step next_step(struct pin_class *keys, const void *addr, size_t length,
			   uint32_t *number)
{
	struct pin_range range = pin_range_of(addr, length);
	struct pin_entry *busy;
	enum step step;

	for (;;) {
		pthread_mutex_lock(&keys->lock);
		busy = NULL;
		if (found(keys, addr, length))
			step = HAS;
		else if (is_hopeless(keys, range))
			step = HAS_NOT;
		else if (!(busy = under_way(keys, range)))
			step = (*number = pin_place_take(keys, choose(keys, range))) ==
					       PIN_NO_ENTRY
				       ? HAS_NOT
				       : REGISTER;
		pthread_mutex_unlock(&keys->lock);
		if (!busy)
			return step;
		pin_os_wait(&busy->state, PIN_ENTRY_BUSY);
	}
}

/* Unless that is decided, or another thread does it at the same time. */
static void come_closer_to_ahead(struct pin_class *keys)
{
	uint32_t left = keys->ahead;

	if (left && left != PIN_AHEAD_NEVER)
		atomic_compare_exchange_strong(&keys->ahead, &left, left - 1);
}

bool pin_keys_prepare(struct pin_domain *domain, struct pin_class *keys, const void *addr,
		      size_t length)
{
	/* Before it is tried: room made meanwhile lets the next one try again. */
	uint32_t released = pin_register_releases(), number;
	struct pin_range range;
	enum step step;

	if (!pin_span_find(addr, length))
		return false;
	range = pin_range_of(addr, length);
	step = next_step(keys, addr, length, &number);
	if (step != REGISTER)
		return step == HAS;
	if (register_place(domain, keys, number, range, true)) {
		come_closer_to_ahead(keys);
		pin_pool_changed();
		return true;
	}
	note_failure(keys, range, released);
	return false;
}

bool pin_keys_prepare_ahead(struct pin_domain *domain, struct pin_class *keys,
			    struct pin_range range)
{
	uint32_t number = PIN_NO_ENTRY;
	bool has; /* all that it is going to */

	pthread_mutex_lock(&keys->lock);
	has = found(keys, (void *)range.start, pin_range_length(range)) ||
	      under_way(keys, range) || pin_granules_any_replaced(range) || !pays(keys, range);
	if (!has)
		number = pin_place_take(keys, range);
	pthread_mutex_unlock(&keys->lock);
	if (has || number == PIN_NO_ENTRY)
		return has;
	return register_place(domain, keys, number, range, false) ||
	       pin_granules_any_replaced(range);
}

/* Not written when it is right already: the line is every thread's. */
static void touch(struct pin_registration *registration)
{
	uint32_t now = atomic_load_explicit(&pin_evict_clock, memory_order_relaxed);

	if (atomic_load_explicit(&registration->used_at, memory_order_relaxed) != now)
		atomic_store_explicit(&registration->used_at, now, memory_order_relaxed);
}

/* If there is one by now. */
static struct pin_registration *use_found(struct pin_class *keys, const void *addr,
					  size_t length, struct pin_user_count **user)
{
	uint32_t number = pin_keys_covering(keys, addr);
	struct pin_registration *registration;
	struct pin_user_count *count;
	struct pin_entry *entry;

	if (PIN_UNLIKELY(number == PIN_NO_ENTRY))
		return NULL;
	entry = pin_place(keys, number);
	registration = pin_place_registration(keys, number);
	count = &registration->users[pin_lane()];
	/* Both sequentially consistent: claim() does the same the other way round. */
	atomic_fetch_add(&count->n, 1);
	if (PIN_UNLIKELY(!(atomic_load(&entry->state) & PIN_ENTRY_READY) ||
			 !pin_entry_covers(entry, addr, length))) {
		pin_keys_put(count);
		return NULL;
	}
	touch(registration);
	*user = count;
	return registration;
}

struct pin_registration *pin_keys_use(struct pin_domain *domain, struct pin_class *keys,
				      const void *addr, size_t length,
				      struct pin_user_count **user)
{
	struct pin_registration *registration;

	while (!(registration = use_found(keys, addr, length, user)))
		if (!pin_keys_prepare(domain, keys, addr, length))
			return NULL;
	return registration;
}

struct pin_entry *pin_keys_hold(struct pin_domain *domain, struct pin_class *keys,
				const void *addr, size_t length)
{
	struct pin_entry *entry;

	do {
		if (!pin_keys_prepare(domain, keys, addr, length))
			return NULL;
		pthread_mutex_lock(&keys->lock);
		entry = found(keys, addr, length);
		if (entry)
			atomic_fetch_or(&entry->state, PIN_ENTRY_HELD);
		pthread_mutex_unlock(&keys->lock);
	} while (!entry);
	return entry;
}

void pin_keys_put(struct pin_user_count *user)
{
	atomic_fetch_sub_explicit(&user->n, 1, memory_order_release);
}
