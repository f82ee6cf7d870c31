/* SPDX-License-Identifier: BSD-2-Clause */
/* Replacing anonymous private memory that the program mapped itself. */
#ifndef STALE_MAPPED_H
#define STALE_MAPPED_H

#include "stale-way.h"

#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

/* Newer than the C library's headers may be. */
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE  103
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* --- mappings that come and go ---------------------------------------------- */

MAKES(make_mapped, make_of(place, PAGE, ANONYMOUS, -1))

REPLACES(fill_mapped, map_again(place, ANONYMOUS, -1, by))

REPLACES(replace_map,
	 succeeded(map_at(place->buffer, place->n_bytes, ANONYMOUS | MAP_FIXED, -1, by)))

REPLACES(replace_forbid,
	 succeeded(by(SYS_mmap, (long)place->buffer, (long)place->n_bytes, PROT_NONE,
		      ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1) == (long)place->buffer))

/* The buffer is in the middle of a mapping, from where its block begins. */
#define MARGIN (16 * PAGE)
#define WIDE   (place->n_bytes + 2 * MARGIN)

static enum result make_wide(struct place *place)
{
	char *at = find_room(WIDE, PAGE);

	if (!at || !map_at(at, WIDE, ANONYMOUS | MAP_FIXED, -1, raw_call))
		return FAILED;
	place->block = at;
	place->buffer = at + MARGIN;
	return DONE;
}

REPLACES(replace_wide, succeeded(!by(SYS_munmap, (long)place->block, (long)WIDE, 0, 0, 0)))

REPLACES(fill_wide,
	 map_at(place->block, WIDE, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, by) ? DONE : ELSEWHERE)

static struct place second_half(const struct place *place)
{
	size_t half = place->n_bytes / 2;

	return (struct place){place->buffer + half, half, NULL, -1};
}

static enum result replace_half(struct place *place, call by)
{
	struct place half = second_half(place);

	return replace_unmap(&half, by);
}

static enum result fill_half(struct place *place, call by)
{
	struct place half = second_half(place);

	return fill_mapped(&half, by);
}

/* --- mremap ------------------------------------------------------------------ */

static long move(long from, const struct place *place, size_t n_bytes, int flags, long to,
		 call by)
{
	return by(SYS_mremap, from, (long)place->n_bytes, (long)n_bytes, MREMAP_MAYMOVE | flags,
		  to);
}

static long map_other(const struct place *place)
{
	return raw_call(SYS_mmap, 0, (long)place->n_bytes, PROT_READ | PROT_WRITE,
			ANONYMOUS | MAP_POPULATE, -1);
}

static enum result replace_remap(struct place *place, call by)
{
	long to = (long)place->buffer;

	return succeeded(move(map_other(place), place, place->n_bytes, MREMAP_FIXED, to, by) ==
			 to);
}

static enum result replace_moved_away(struct place *place, call by)
{
	long to = map_other(place);

	return succeeded(
		move((long)place->buffer, place, place->n_bytes, MREMAP_FIXED, to, by) == to);
}

/* The buffer moves, as it cannot grow where it is. */
static enum result replace_grown_away(struct place *place, call by)
{
	long moved = move((long)place->buffer, place, 2 * place->n_bytes, 0, 0, by);

	return succeeded(moved >= 0 || moved <= -(long)PAGE);
}

/* The pages move, the mapping stays. */
static enum result replace_emptied(struct place *place, call by)
{
	long moved = move((long)place->buffer, place, place->n_bytes, MREMAP_DONTUNMAP, 0, by);

	return succeeded(moved >= 0 || moved <= -(long)PAGE);
}

/* --- madvise ----------------------------------------------------------------- */

REPLACES(replace_advise, advise(place, MADV_DONTNEED, by))

REPLACES(replace_locked, advise(place, MADV_DONTNEED_LOCKED, by))

/* Since Linux 6.13. */
REPLACES(replace_guarded,
	 advise(place, MADV_GUARD_INSTALL, by) ?: advise(place, MADV_GUARD_REMOVE, by))

/* These three leave pages that the adapter holds where they are. */
REPLACES(replace_free_lazily, advise(place, MADV_FREE, by))

REPLACES(replace_cold, advise(place, MADV_COLD, by))

REPLACES(replace_paged_out, advise(place, MADV_PAGEOUT, by))

MAKES(make_small_pages, make_mapped(place) ?: advise(place, MADV_NOHUGEPAGE, raw_call))

/* It fails where it cannot have pages that the adapter holds, and may. */
static enum result replace_collapsed(struct place *place, call by)
{
	enum result result = advise(place, MADV_HUGEPAGE, raw_call);

	advise(place, MADV_COLLAPSE, by);
	return result;
}

/* --- the program break ------------------------------------------------------- */

static enum result make_break(struct place *place)
{
	uintptr_t at = ((uintptr_t)sbrk(0) + PAGE - 1) & -PAGE;

	if (move_break((long)(at + place->n_bytes)) != (long)(at + place->n_bytes))
		return FAILED;
	place->buffer = place->block = (char *)at;
	return DONE;
}

/* malloc may have put something above it. */
static enum result replace_break(struct place *place, call by)
{
	long begin = (long)place->buffer;

	if ((long)sbrk(0) != begin + (long)place->n_bytes)
		return ELSEWHERE;
	return succeeded(by(SYS_brk, begin, 0, 0, 0, 0) == begin);
}

static enum result fill_break(struct place *place, call by)
{
	long end = (long)place->buffer + (long)place->n_bytes;

	return succeeded(by(SYS_brk, end, 0, 0, 0, 0) == end);
}

#endif
