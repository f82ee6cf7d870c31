/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/books.h"
#include "regpool/sorted.h"
#include "regpool/uffd.h"

#include <pthread.h>

/*
 * Held while a watch begins or ends, which sleeps until the userfaultfd thread has done it. So
 * that thread must never take this lock, and no listener may be called under it.
 */
static pthread_mutex_t books_lock = PTHREAD_MUTEX_INITIALIZER;

/* The range of a memory region, sorted by its address. */
struct holder {
	uintptr_t mr;
	struct pin_pages range;
};
static struct pin_sorted holders = {.element_size = sizeof(struct holder)};

static struct holder *holder_of(const struct ibv_mr *mr, size_t *at)
{
	struct holder *found;

	*at = pin_sorted_lower_bound(&holders, (uintptr_t)mr);
	found = pin_sorted_at(&holders, *at);
	return found && found->mr == (uintptr_t)mr ? found : NULL;
}

int pin_books_add(struct pin_pages range, uint64_t *descriptors)
{
	int error;

	pthread_mutex_lock(&books_lock);
	error = pin_pieces_add(range, descriptors);
	pthread_mutex_unlock(&books_lock);
	return error;
}

int pin_books_renew(struct pin_pages range, uint64_t *descriptors)
{
	int error;

	pthread_mutex_lock(&books_lock);
	error = pin_pieces_renew(range, descriptors);
	pthread_mutex_unlock(&books_lock);
	return error;
}

/*
 * An entry with the same address is of a memory region that was deregistered behind our back,
 * by libibverbs' own function.
 */
static bool set_holder(struct pin_pages range, const struct ibv_mr *mr)
{
	struct holder fresh = {(uintptr_t)mr, range};
	size_t at;
	struct holder *old = holder_of(mr, &at);

	if (old) {
		pin_pieces_remove(old->range);
		*old = fresh;
		return true;
	}
	return pin_sorted_insert(&holders, at, &fresh);
}

void pin_books_keep(struct pin_pages range, const struct ibv_mr *mr)
{
	pthread_mutex_lock(&books_lock);
	if (!mr || !set_holder(range, mr))
		pin_pieces_remove(range);
	pthread_mutex_unlock(&books_lock);
}

bool pin_books_remove(const struct ibv_mr *mr, struct pin_pages *range)
{
	struct holder *found;
	size_t at;

	if (!atomic_load(&holders.n))
		return false;
	pthread_mutex_lock(&books_lock);
	found = holder_of(mr, &at);
	if (found) {
		*range = found->range;
		pin_sorted_remove(&holders, at);
	}
	pthread_mutex_unlock(&books_lock);
	return found;
}

bool pin_books_cover(struct pin_pages range)
{
	bool watched;

	pthread_mutex_lock(&books_lock);
	watched = pin_pieces_are_watched(range);
	pthread_mutex_unlock(&books_lock);
	return watched;
}

bool pin_books_note_unmapped(unsigned n, uintptr_t start, uintptr_t end)
{
	struct pin_pages range = {start, end};

	if (pthread_mutex_trylock(&books_lock))
		return false;
	pin_pieces_note_unmapped(n, range);
	pin_pieces_drop_spare(n, range);
	pthread_mutex_unlock(&books_lock);
	return true;
}

bool pin_books_note_moved_in(unsigned n, uintptr_t start, uintptr_t end, uint64_t *again)
{
	bool all;

	if (pthread_mutex_trylock(&books_lock))
		return false;
	all = pin_pieces_drop_stray(n, (struct pin_pages){start, end}, again);
	pthread_mutex_unlock(&books_lock);
	return all;
}

bool pin_books_note_discarded(unsigned n, uintptr_t start, uintptr_t end, uint64_t *again)
{
	struct pin_pages range = {start, end};
	bool all = true;

	if (pthread_mutex_trylock(&books_lock))
		return false;
	pin_pieces_drop_spare(n, range);
	if (n != PIN_UFFD_HEAP)
		all = pin_pieces_drop_stray(n, range, again);
	pthread_mutex_unlock(&books_lock);
	return all;
}

void pin_books_reset(void)
{
	pthread_mutex_init(&books_lock, NULL);
	holders.n = 0;
	pin_pieces_reset();
}
