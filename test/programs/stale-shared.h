/* SPDX-License-Identifier: BSD-2-Clause */
/* Replacing memory of files, shared memory segments and hugetlb pages. */
#ifndef STALE_SHARED_H
#define STALE_SHARED_H

#include "stale-way.h"

#include <fcntl.h>

/* --- shared memory without a name -------------------------------------------- */

MAKES(make_shared, make_of(place, PAGE, MAP_SHARED | MAP_ANONYMOUS, -1))

REPLACES(fill_shared, map_again(place, MAP_SHARED | MAP_ANONYMOUS, -1, by))

REPLACES(replace_removed, advise(place, MADV_REMOVE, by))

/* --- memory files ------------------------------------------------------------ */

static int make_memory_file(void)
{
	int fd = memfd_create("stale", MFD_CLOEXEC);

	return fd < 0 || ftruncate(fd, 2 * (off_t)BYTES) ? -1 : fd;
}

MAKES(make_memfd, make_of(place, PAGE, MAP_SHARED, make_memory_file()))

REPLACES(fill_memfd, map_again(place, MAP_SHARED, make_memory_file(), by))

/* The mapping stays, the file loses its pages and gets new ones. */
REPLACES(replace_punched,
	 succeeded(!fallocate(place->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			      (off_t)place->n_bytes)))

REPLACES(replace_truncated,
	 succeeded(!ftruncate(place->fd, 0) && !ftruncate(place->fd, (off_t)BYTES)))

/* To the file's second half. */
REPLACES(replace_file_pages,
	 succeeded(!remap_file_pages(place->buffer, place->n_bytes, 0, BYTES / PAGE, 0)))

static int remove_pages(const struct place *place)
{
	void *at = mmap(NULL, place->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, place->fd, 0);

	return at == MAP_FAILED || madvise(at, place->n_bytes, MADV_REMOVE);
}

MAKES(make_common, make_memfd(place) ?: keep_child(remove_pages, place))

REPLACES(replace_by_child, let_child())

/* --- segments of System V ---------------------------------------------------- */

/* It goes when it is attached nowhere. */
static enum result attach(struct place *place, int flags, call by)
{
	int segment = shmget(IPC_PRIVATE, place->n_bytes, IPC_CREAT | 0600);
	long at = by(SYS_shmat, segment, (long)place->buffer, flags, 0, 0);

	shmctl(segment, IPC_RMID, NULL);
	return succeeded((char *)at == place->buffer);
}

static enum result make_attached(struct place *place)
{
	place->buffer = place->block = find_room(place->n_bytes, PAGE);
	return place->buffer ? attach(place, SHM_REMAP, raw_call) : FAILED;
}

REPLACES(replace_attached, succeeded(!by(SYS_shmdt, (long)place->buffer, 0, 0, 0, 0)))

REPLACES(fill_attached, attach(place, 0, by))

REPLACES(replace_attached_over, attach(place, SHM_REMAP, by))

/* --- the system's huge pages ------------------------------------------------- */

#define HUGE (MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB)

MAKES(make_huge, make_of(place, HUGE_PAGE, HUGE, -1))

REPLACES(fill_huge, map_again(place, HUGE, -1, by))

/* --- a file, privately ------------------------------------------------------- */

/* Makes the program's own file large enough to be mapped. */
static const volatile char content[BYTES] = {1};

static int open_file(void)
{
	return content[0] ? open("/proc/self/exe", O_RDONLY | O_CLOEXEC) : -1;
}

MAKES(make_file, make_of(place, PAGE, MAP_PRIVATE, open_file()))

REPLACES(fill_file, map_again(place, MAP_PRIVATE, open_file(), by))

#endif
