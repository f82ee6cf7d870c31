/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/books.h"
#include "regpool/sorted.h"
#include "regpool/uffd.h"

#include <pthread.h>

/*
 * Held while a piece is watched or not any longer, which sleeps for userfaultfd's thread; that
 * one never takes it, nor does anybody hold it who calls a listener.
 */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Whose range it is, by the address of the memory region. */
struct holder {
	uintptr_t mr;
	struct pin_pages range;
};
static struct pin_sorted holders = {.element_size = sizeof(struct holder)};

static struct holder *holder_of(const struct ibv_mr *mr, size_t *at)
{
	struct holder *found;

	*at = pin_sorted_from(&holders, (uintptr_t)mr);
	found = pin_sorted_at(&holders, *at);
	return found && found->mr == (uintptr_t)mr ? found : NULL;
}

int pin_books_add(struct pin_pages range, uint64_t *descriptors)
{
	int error;

	pthread_mutex_lock(&lock);
	error = pin_pieces_add(range, descriptors);
	pthread_mutex_unlock(&lock);
	return error;
}

int pin_books_renew(struct pin_pages range, uint64_t *descriptors)
{
	int error;

	pthread_mutex_lock(&lock);
	error = pin_pieces_renew(range, descriptors);
	pthread_mutex_unlock(&lock);
	return error;
}

/* An older one of the same address went without us: by libibverbs' own function. */
static bool hold(struct pin_pages range, const struct ibv_mr *mr)
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
	pthread_mutex_lock(&lock);
	if (!mr || !hold(range, mr))
		pin_pieces_remove(range);
	pthread_mutex_unlock(&lock);
}

bool pin_books_take(const struct ibv_mr *mr, struct pin_pages *range)
{
	struct holder *found;
	size_t at;

	if (!atomic_load(&holders.n))
		return false;
	pthread_mutex_lock(&lock);
	found = holder_of(mr, &at);
	if (found) {
		*range = found->range;
		pin_sorted_remove(&holders, at);
	}
	pthread_mutex_unlock(&lock);
	return found;
}

bool pin_books_have(struct pin_pages range)
{
	bool watched;

	pthread_mutex_lock(&lock);
	watched = pin_pieces_watched(range);
	pthread_mutex_unlock(&lock);
	return watched;
}

bool pin_books_lose(unsigned n, uintptr_t start, uintptr_t end)
{
	struct pin_pages range = {start, end};

	if (pthread_mutex_trylock(&lock))
		return false;
	pin_pieces_lose(n, range);
	pin_pieces_give_up_spare(n, range);
	pthread_mutex_unlock(&lock);
	return true;
}

bool pin_books_move_in(unsigned n, uintptr_t start, uintptr_t end, uint64_t *again)
{
	bool all;

	if (pthread_mutex_trylock(&lock))
		return false;
	all = pin_pieces_give_up_strange(n, (struct pin_pages){start, end}, again);
	pthread_mutex_unlock(&lock);
	return all;
}

bool pin_books_discard(unsigned n, uintptr_t start, uintptr_t end, uint64_t *again)
{
	struct pin_pages range = {start, end};
	bool all = true;

	if (pthread_mutex_trylock(&lock))
		return false;
	pin_pieces_give_up_spare(n, range);
	if (n != PIN_UFFD_HEAP)
		all = pin_pieces_give_up_strange(n, range, again);
	pthread_mutex_unlock(&lock);
	return all;
}

void pin_books_leave(void)
{
	pthread_mutex_init(&lock, NULL);
	holders.n = 0;
	pin_pieces_forget();
}
