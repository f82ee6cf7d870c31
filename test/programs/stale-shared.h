/* SPDX-License-Identifier: BSD-2-Clause */
/* Replacing memory of files, shared memory segments and hugetlb pages. */
#ifndef STALE_SHARED_H
#define STALE_SHARED_H

#include "stale-way.h"

#include <fcntl.h>

/* --- shared memory without a name -------------------------------------------- */

MAKES(make_shared, PAGE, MAP_SHARED | MAP_ANONYMOUS, -1)
ADVISES(replace_removed, MADV_REMOVE)

/* --- memory files ------------------------------------------------------------ */

static int make_memory_file(void)
{
	int fd = memfd_create("stale", MFD_CLOEXEC);

	return fd < 0 || ftruncate(fd, 2 * (off_t)BYTES) ? -1 : fd;
}

MAKES(make_memfd, PAGE, MAP_SHARED, make_memory_file())
UNMAPS(replace_memfd, MAP_SHARED, make_memory_file())

/* The mapping stays, the file loses its pages and gets new ones. */
static enum result replace_punched(struct place *place, call by)
{
	(void)by;
	return succeeded(!fallocate(place->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				    (off_t)BYTES));
}

static enum result replace_truncated(struct place *place, call by)
{
	(void)by;
	return succeeded(!ftruncate(place->fd, 0) && !ftruncate(place->fd, (off_t)BYTES));
}

/* To the file's second half. */
static enum result replace_file_pages(struct place *place, call by)
{
	(void)by;
	return succeeded(!remap_file_pages(place->buffer, BYTES, 0, BYTES / PAGE, 0));
}

static int remove_pages(const struct place *place)
{
	void *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, place->fd, 0);

	return at == MAP_FAILED || madvise(at, BYTES, MADV_REMOVE);
}

static enum result make_common(struct place *place)
{
	enum result result = make_memfd(place);

	return result ? result : keep_child(remove_pages, place);
}

static enum result replace_by_child(struct place *place, call by)
{
	(void)place;
	(void)by;
	return let_child();
}

/* --- segments of System V ---------------------------------------------------- */

/* It goes when it is attached nowhere. */
static enum result attach(struct place *place, int flags, call by)
{
	int segment = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
	long at = by(SYS_shmat, segment, (long)place->buffer, flags, 0, 0);

	shmctl(segment, IPC_RMID, NULL);
	return succeeded((char *)at == place->buffer);
}

static enum result make_attached(struct place *place)
{
	place->buffer = place->block = find_room(BYTES, PAGE);
	return place->buffer ? attach(place, SHM_REMAP, raw_call) : FAILED;
}

static enum result replace_attached(struct place *place, call by)
{
	return by(SYS_shmdt, (long)place->buffer, 0, 0, 0, 0) ? FAILED : attach(place, 0, by);
}

static enum result replace_attached_over(struct place *place, call by)
{
	return attach(place, SHM_REMAP, by);
}

/* --- the system's huge pages ------------------------------------------------- */

#define HUGE (MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB)

MAKES(make_huge, HUGE_PAGE, HUGE, -1)
UNMAPS(replace_huge, HUGE, -1)

/* --- a file, privately ------------------------------------------------------- */

/* Makes the program's own file large enough to be mapped. */
static const volatile char content[BYTES] = {1};

static int open_file(void)
{
	return content[0] ? open("/proc/self/exe", O_RDONLY | O_CLOEXEC) : -1;
}

MAKES(make_file, PAGE, MAP_PRIVATE, open_file())
UNMAPS(replace_file, MAP_PRIVATE, open_file())

#endif
