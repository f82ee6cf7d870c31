/* SPDX-License-Identifier: BSD-2-Clause */
/* Replacing memory of files, shared memory segments and hugetlb pages. */
#ifndef STALE_SHARED_H
#define STALE_SHARED_H

#include "stale-way.h"

#include <fcntl.h>

/* --- shared memory without a name -------------------------------------------- */

static enum result make_shared(struct place *place)
{
	return make_of(place, PAGE, MAP_SHARED | MAP_ANONYMOUS, -1);
}

static enum result fill_shared(struct place *place, call by)
{
	return map_again(place, MAP_SHARED | MAP_ANONYMOUS, -1, by);
}

static enum result replace_removed(struct place *place, call by)
{
	return advise(place, MADV_REMOVE, by);
}

/* --- memory files ------------------------------------------------------------ */

static int make_memory_file(void)
{
	int fd = memfd_create("stale", MFD_CLOEXEC);

	return fd < 0 || ftruncate(fd, 2 * (off_t)BYTES) ? -1 : fd;
}

static enum result make_memfd(struct place *place)
{
	return make_of(place, PAGE, MAP_SHARED, make_memory_file());
}

static enum result fill_memfd(struct place *place, call by)
{
	return map_again(place, MAP_SHARED, make_memory_file(), by);
}

/* The mapping stays, the file loses its pages and gets new ones. */
static enum result replace_punched(struct place *place, call by)
{
	(void)by;
	return succeeded(!fallocate(place->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				    (off_t)place->n_bytes));
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
	return succeeded(!remap_file_pages(place->buffer, place->n_bytes, 0, BYTES / PAGE, 0));
}

static int remove_pages(const struct place *place)
{
	void *at = mmap(NULL, place->n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, place->fd, 0);

	return at == MAP_FAILED || madvise(at, place->n_bytes, MADV_REMOVE);
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

static int make_segment(void)
{
	return shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
}

/* It goes when it is attached nowhere. */
static enum result attach(struct place *place, int flags, call by)
{
	int segment = make_segment();
	long at = by(SYS_shmat, segment, (long)place->buffer, flags, 0, 0);

	shmctl(segment, IPC_RMID, NULL);
	return succeeded((char *)at == place->buffer);
}

static enum result make_attached(struct place *place)
{
	place->buffer = place->block = find_room(place->n_bytes, PAGE);
	return place->buffer ? attach(place, SHM_REMAP, raw_call) : FAILED;
}

static enum result replace_attached(struct place *place, call by)
{
	return succeeded(!by(SYS_shmdt, (long)place->buffer, 0, 0, 0, 0));
}

static enum result fill_attached(struct place *place, call by)
{
	return attach(place, 0, by);
}

static enum result replace_attached_over(struct place *place, call by)
{
	return attach(place, SHM_REMAP, by);
}

/* --- the system's huge pages ------------------------------------------------- */

#define HUGE (MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB)

static enum result make_huge(struct place *place)
{
	return make_of(place, HUGE_PAGE, HUGE, -1);
}

static enum result fill_huge(struct place *place, call by)
{
	return map_again(place, HUGE, -1, by);
}

/* --- a file, privately ------------------------------------------------------- */

/* Makes the program's own file large enough to be mapped. */
static const volatile char content[BYTES] = {1};

static int open_file(void)
{
	return content[0] ? open("/proc/self/exe", O_RDONLY | O_CLOEXEC) : -1;
}

static enum result make_file(struct place *place)
{
	return make_of(place, PAGE, MAP_PRIVATE, open_file());
}

static enum result fill_file(struct place *place, call by)
{
	return map_again(place, MAP_PRIVATE, open_file(), by);
}

#endif
