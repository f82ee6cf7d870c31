/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slices: random sequences against a model, which keeps for each quantum who has it; how much
 * memory a cache of keys and values needs for what it holds; misuse. The memory is addresses
 * without anything behind: who touches it ends this program.
 */
#include <config.h>

#include "regpool/slices.h"
#include "test/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BASE   ((uintptr_t)1 << 40)
#define QUANTA 4096u
#define PIECE  (QUANTA * PIN_SLICE_QUANTUM)
#define PIECES 3u
#define MOST   500u
#define ROUNDS 200000u

static uint64_t seed = 1;

static uint64_t any(uint64_t below)
{
	uint64_t z = seed += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (z ^ z >> 31) % below;
}

static bool taken[PIECES][QUANTA];
static struct slice {
	uintptr_t start;
	size_t n_bytes, quanta;
} held[MOST];

static void *piece_at(unsigned i)
{
	/* One directly behind the other: what is cut must not cross. */
	return (void *)(BASE + i * (size_t)PIECE);
}

static bool claim(const struct slice *slice, bool now)
{
	size_t first = (slice->start - BASE) / PIN_SLICE_QUANTUM;
	size_t last = first + slice->quanta - 1;
	bool good = last / QUANTA < PIECES && first / QUANTA == last / QUANTA;

	for (size_t i = first; good && i <= last; i++) {
		bool *at = &taken[i / QUANTA][i % QUANTA];

		good &= *at != now;
		*at = now;
	}
	return good;
}

/* Whether the model has room for it anywhere. */
static bool has_room(size_t quanta, size_t alignment)
{
	size_t step = alignment / PIN_SLICE_QUANTUM, from, n;

	for (unsigned k = 0; k < PIECES; k++)
		for (from = 0; from + quanta <= QUANTA; from += step) {
			for (n = 0; n < quanta && !taken[k][from + n]; n++)
				;
			if (n == quanta)
				return true;
		}
	return false;
}

static struct slice random_slice(size_t *alignment)
{
	struct slice slice = {.n_bytes = any(1 + any(any(50) ? 20000 : PIECE + 100))};

	slice.quanta = ((slice.n_bytes ? slice.n_bytes : 1) + PIN_SLICE_QUANTUM - 1) /
		       PIN_SLICE_QUANTUM;
	*alignment = (size_t)PIN_SLICE_QUANTUM << (any(3) ? 0 : any(8));
	return slice;
}

static void model(void)
{
	struct pin_slices *slices = pin_slices_new();
	bool good = true, found = true, freed = true, counted = true;
	size_t n = 0, bytes = 0, alignment, failed = 0;

	for (unsigned i = 0; i < PIECES; i++)
		good &= !pin_slices_add(slices, piece_at(i), PIECE);
	for (unsigned i = 0; i < ROUNDS; i++) {
		size_t k = any(MOST);

		if (held[k].start) {
			freed &= !pin_slices_free(slices, (void *)held[k].start) &&
				 claim(&held[k], false);
			bytes -= held[k].quanta * PIN_SLICE_QUANTUM;
			held[k].start = 0;
			n--;
			continue;
		}
		held[k] = random_slice(&alignment);
		held[k].start = (uintptr_t)pin_slices_alloc(slices, held[k].n_bytes, alignment);
		if (!held[k].start) {
			failed++;
			found &= !has_room(held[k].quanta, alignment);
			continue;
		}
		good &= !(held[k].start % alignment) && claim(&held[k], true);
		bytes += held[k].quanta * PIN_SLICE_QUANTUM;
		n++;
		counted &= pin_slices_count(slices) == n && pin_slices_bytes(slices) == bytes;
	}
	ok(good, "slices are aligned, within one piece, and nobody else's");
	ok(freed, "each can be given back");
	ok(found && failed > 100, "none is refused that there is room for (%zu were)", failed);
	ok(counted, "they are counted");
	for (size_t k = 0; k < MOST; k++)
		if (held[k].start)
			pin_slices_free(slices, (void *)held[k].start);
	good = true;
	for (unsigned i = 0; i < PIECES; i++)
		good &= pin_slices_alloc(slices, PIECE, 1) != NULL;
	ok(good, "all of it has merged when all are free");
	pin_slices_delete(slices);
}

static void misuse(void)
{
	struct pin_slices *slices = pin_slices_new();
	char *p;

	pin_slices_add(slices, piece_at(0), PIECE);
	ok(pin_slices_free(slices, piece_at(0)) == -EINVAL, "what nobody has is not freed");
	p = pin_slices_alloc(slices, 1000, 1);
	ok(pin_slices_free(slices, p + 64) == -EINVAL, "nor what is inside of a slice");
	ok(pin_slices_free(slices, &slices) == -EINVAL, "nor what is elsewhere");
	ok(pin_slices_free(slices, NULL) == -EINVAL, "nor nothing");
	ok(!pin_slices_free(slices, p) && pin_slices_free(slices, p) == -EINVAL, "nor twice");
	ok(!pin_slices_alloc(slices, SIZE_MAX, 1) && !pin_slices_alloc(slices, PIECE + 1, 1),
	   "more than there is: NULL");
	ok(pin_slices_alloc(slices, 0, 1) != pin_slices_alloc(slices, 0, 1),
	   "slices of no bytes are distinct");
	pin_slices_delete(slices);
}

/*
 * Blocks of 1 to 64 MiB, as many as go into `most` bytes, any of them freed for the next: as
 * hard as such a cache can make it, because each has another length.
 */
static size_t refused(struct pin_slices *slices, size_t most, bool doubles)
{
	static struct slice blocks[8192];
	size_t n = 0, live = 0, n_refused = 0, i, size;

	for (unsigned round = 0; round < 100000; round++) {
		size = doubles ? PIN_MIB << any(7) : PIN_MIB + any(63 * PIN_MIB / 4096) * 4096;
		for (; live + size > most; blocks[i] = blocks[--n]) {
			i = any(n);
			pin_slices_free(slices, (void *)blocks[i].start);
			live -= blocks[i].n_bytes;
		}
		blocks[n] = (struct slice){.n_bytes = size};
		blocks[n].start = (uintptr_t)pin_slices_alloc(slices, size, 4096);
		if (!blocks[n].start) {
			n_refused++;
			continue;
		}
		live += size;
		n++;
	}
	return n_refused;
}

static void keys_and_values(void)
{
	const size_t most = 1000 * 32 * PIN_MIB; /* a thousand blocks */

	for (int doubles = 0; doubles < 2; doubles++) {
		struct pin_slices *slices = pin_slices_new();
		size_t n;

		pin_slices_add(slices, piece_at(0), most / 10 * 11);
		n = refused(slices, most, doubles);
		ok(!n,
		   "memory of 1.1 times what is live is enough for %s of 1 to 64 MiB: %zu "
		   "refused",
		   doubles ? "powers of two" : "any sizes", n);
		pin_slices_delete(slices);
	}
}

int main(void)
{
	model();
	misuse();
	keys_and_values();
	return done_testing();
}
