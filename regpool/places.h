/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where the entries of a class are: taking a place for one, having it found, and giving it up.
 * What keys.h tells of them holds here; only keys.c needs more than that.
 */
#ifndef PIN_PLACES_H
#define PIN_PLACES_H

#include "regpool/keys.h"

static inline struct pin_entry *pin_place(struct pin_class *keys, uint32_t number)
{
	return pin_table_at(&keys->entries, struct pin_entry, number);
}

static inline struct pin_range pin_place_range(const struct pin_entry *entry)
{
	return (struct pin_range){entry->start, entry->start + entry->length};
}

/*
 * A free place for an entry that is to have the range: BUSY, and the calling thread's.
 * PIN_NO_ENTRY without memory for it. With the class's lock.
 */
uint32_t pin_place_take(struct pin_class *keys, struct pin_range range);

/* An entry that is BUSY is to have less than it was taken for. With the class's lock. */
void pin_place_narrow(struct pin_class *keys, uint32_t number, struct pin_range range);

/* Ends a BUSY phase with an entry that is READY, and found unless it is stale. With the lock.
 */
void pin_place_publish(struct pin_class *keys, uint32_t number, uint32_t state);

/* Ends a BUSY phase with a place that is free. With the class's lock. */
void pin_place_free(struct pin_class *keys, uint32_t number);

/* The entries that meet a range, one after the other. With the class's lock all the time. */
struct pin_walk {
	struct pin_range range;
	uintptr_t at;
	uint32_t next;
};
struct pin_walk pin_walk(struct pin_class *keys, struct pin_range range);

/* The next one, which may go; PIN_NO_ENTRY at the end. */
uint32_t pin_walk_next(struct pin_class *keys, struct pin_walk *walk);

/*
 * Deregisters those that meet the range, nobody uses and no look-up finds; of those that are
 * used it makes a note, and does so with them another time, wherever that is.
 */
void pin_place_sweep(struct pin_domain *domain, struct pin_class *keys, struct pin_range range);

/* MRs given back so far. */
uint32_t pin_keys_releases(void);

#endif
