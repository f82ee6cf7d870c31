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

MAKES(make_mapped, PAGE, ANONYMOUS, -1)
UNMAPS(replace_unmap, ANONYMOUS, -1)

static enum result replace_map(struct place *place, call by)
{
	return succeeded(map_at(place->buffer, BYTES, ANONYMOUS | MAP_FIXED, -1, by));
}

/* The buffer is in the middle of a mapping, from where its block begins. */
#define MARGIN (16 * PAGE)
#define WIDE   (BYTES + 2 * MARGIN)

static enum result make_wide(struct place *place)
{
	char *at = find_room(WIDE, PAGE);

	if (!at || !map_at(at, WIDE, ANONYMOUS | MAP_FIXED, -1, raw_call))
		return FAILED;
	place->block = at;
	place->buffer = at + MARGIN;
	return DONE;
}

static enum result replace_wide(struct place *place, call by)
{
	if (by(SYS_munmap, (long)place->block, (long)WIDE, 0, 0, 0))
		return FAILED;
	return map_at(place->block, WIDE, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, by) ? DONE
										   : ELSEWHERE;
}

static enum result replace_half(struct place *place, call by)
{
	char *half = place->buffer + BYTES / 2;

	if (by(SYS_munmap, (long)half, (long)BYTES / 2, 0, 0, 0))
		return FAILED;
	return map_at(half, BYTES / 2, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, by) ? DONE
										: ELSEWHERE;
}

/* --- mremap ------------------------------------------------------------------ */

static enum result replace_remap(struct place *place, call by)
{
	long other = raw_call(SYS_mmap, 0, (long)BYTES, PROT_READ | PROT_WRITE,
			      ANONYMOUS | MAP_POPULATE, -1);
	long moved = by(SYS_mremap, other, (long)BYTES, (long)BYTES,
			MREMAP_MAYMOVE | MREMAP_FIXED, (long)place->buffer);

	return succeeded((char *)moved == place->buffer);
}

/* The buffer moves, as it cannot grow where it is; something else comes there. */
static enum result replace_grown_away(struct place *place, call by)
{
	long moved = by(SYS_mremap, (long)place->buffer, (long)BYTES, 2 * (long)BYTES,
			MREMAP_MAYMOVE, 0);

	if (moved < 0 && moved > -(long)PAGE)
		return FAILED;
	return map_at(place->buffer, BYTES, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, by)
		       ? DONE
		       : ELSEWHERE;
}

/* The pages move, the mapping stays. */
static enum result replace_emptied(struct place *place, call by)
{
	long moved = by(SYS_mremap, (long)place->buffer, (long)BYTES, (long)BYTES,
			MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);

	return succeeded(moved >= 0 || moved <= -(long)PAGE);
}

/* --- madvise ----------------------------------------------------------------- */

ADVISES(replace_advise, MADV_DONTNEED)
ADVISES(replace_locked, MADV_DONTNEED_LOCKED)
/* These three leave pages that the adapter holds where they are. */
ADVISES(replace_free_lazily, MADV_FREE)
ADVISES(replace_cold, MADV_COLD)
ADVISES(replace_paged_out, MADV_PAGEOUT)

/* Since Linux 6.13. */
static enum result replace_guarded(struct place *place, call by)
{
	enum result result = advise(place, MADV_GUARD_INSTALL, by);

	return result ? result : advise(place, MADV_GUARD_REMOVE, by);
}

static enum result make_small_pages(struct place *place)
{
	enum result result = make_mapped(place);

	return result ? result : advise(place, MADV_NOHUGEPAGE, raw_call);
}

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

	if (move_break((long)(at + BYTES)) != (long)(at + BYTES))
		return FAILED;
	place->buffer = place->block = (char *)at;
	return DONE;
}

/* malloc may have put something above it. */
static enum result replace_break(struct place *place, call by)
{
	long begin = (long)place->buffer, end = begin + (long)BYTES;

	if ((long)sbrk(0) != end)
		return ELSEWHERE;
	return succeeded(by(SYS_brk, begin, 0, 0, 0, 0) == begin &&
			 by(SYS_brk, end, 0, 0, 0, 0) == end);
}

#endif
