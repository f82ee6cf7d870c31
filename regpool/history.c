/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/history.h"

#include <stdatomic.h>

/* Ranges that are remembered: in sets, found by a hash, of which each holds a few. */
#define SETS 4096
#define WAYS 4

/* At most 2^16 registrations in a row go unwatched. */
#define MOST_UNMAPPED 16

/*
 * A range is one word, so that little memory is touched and threads need no lock: in its upper
 * bits a part of the hash, below that how many registrations are left before it is watched, and
 * in the lowest how often it was unmapped. 0 is unused. Two ranges that look the same only
 * share what is remembered.
 */
#define UNMAPPED_BITS 5
#define BITS	      (UNMAPPED_BITS + MOST_UNMAPPED + 1)
#define ONE_LEFT      ((uint64_t)1 << UNMAPPED_BITS)

static _Atomic uint64_t table[SETS][WAYS];

static uint64_t hash_of(struct pin_pages range)
{
	uint64_t key = (range.start / PIN_PAGE) ^ (range.end / PIN_PAGE << 20);

	key *= 0x9e3779b97f4a7c15u;
	return (key ^ key >> 32) * 0x9e3779b97f4a7c15u;
}

static uint64_t left_of(uint64_t word)
{
	return (word & (((uint64_t)1 << BITS) - 1)) >> UNMAPPED_BITS;
}

static _Atomic uint64_t *set_of(uint64_t hash)
{
	return table[hash % SETS];
}

static _Atomic uint64_t *find(uint64_t hash)
{
	for (int i = 0; i < WAYS; i++)
		if (set_of(hash)[i] >> BITS == hash >> BITS)
			return &set_of(hash)[i];
	return NULL;
}

/* In an unused place or, if there is none, in place of any other. */
static void remember(uint64_t hash)
{
	static _Atomic uint32_t next;
	_Atomic uint64_t *place = set_of(hash), *last = place + WAYS - 1;

	while (place < last && *place)
		place++;
	if (*place)
		place = &set_of(hash)[atomic_fetch_add(&next, 1) % WAYS];
	*place = hash >> BITS << BITS;
}

bool pin_history_add(struct pin_pages range)
{
	uint64_t hash = hash_of(range), word;
	_Atomic uint64_t *place = find(hash);

	if (!place) {
		remember(hash);
		return false;
	}
	word = *place;
	if (!left_of(word))
		return true;
	*place = word - ONE_LEFT;
	return false;
}

void pin_history_note_unmapped(struct pin_pages range)
{
	_Atomic uint64_t *place = find(hash_of(range));
	uint64_t word = place ? *place : 0, n;

	if (!place)
		return;
	n = word & (ONE_LEFT - 1);
	n += n < MOST_UNMAPPED;
	*place = (word >> BITS << BITS) | (ONE_LEFT << n) | n;
}
