/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/pieces.h"
#include "allocator/os.h"
#include "regpool/sorted.h"
#include "regpool/uffd.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define NOBODY UINT16_MAX /* cannot be watched */

struct piece {
	uintptr_t start, end;
	uint32_t users;	  /* registrations; 0: it is spare */
	uint16_t watcher; /* descriptor, or NOBODY */
	bool is_gone;	  /* unmapped: what the program maps there is not watched yet */
};
static struct pin_sorted pieces = {.element_size = sizeof(struct piece)};

/* Pieces of each descriptor; how many descriptors there may be, and are. */
static uint32_t watched_by[PIN_UFFDS], n_watched;
static unsigned n_watchers = PIN_UFFDS, n_opened;

/* Pieces that nobody has, and where the next to give up is looked for. */
static size_t n_spare, hand;

/*
 * Held for each change and while pieces are listed, which the thread does that listeners wait
 * for; never while the kernel is asked for anything.
 */
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;

static struct piece *piece_at(size_t i)
{
	return pin_sorted_at(&pieces, i);
}

/* The first piece that ends above an address. */
static size_t first_above(uintptr_t addr)
{
	size_t i = pin_sorted_from(&pieces, addr);

	return i && piece_at(i - 1)->end > addr ? i - 1 : i;
}

static void count_spare(const struct piece *piece, int n)
{
	n_spare += piece->users ? 0 : (size_t)n;
}

static void count(const struct piece *piece, int n)
{
	if (piece->watcher == NOBODY)
		return;
	watched_by[piece->watcher] += (uint32_t)n;
	n_watched += (uint32_t)n;
}

static bool insert(size_t i, struct piece piece)
{
	bool inserted;

	pthread_mutex_lock(&changing);
	inserted = pin_sorted_insert(&pieces, i, &piece);
	pthread_mutex_unlock(&changing);
	if (!inserted)
		return false;
	count(&piece, 1);
	count_spare(&piece, 1);
	return true;
}

static void change(size_t i, struct piece to)
{
	count(piece_at(i), -1);
	count_spare(piece_at(i), -1);
	pthread_mutex_lock(&changing);
	*piece_at(i) = to;
	pthread_mutex_unlock(&changing);
	count(&to, 1);
	count_spare(&to, 1);
}

static void drop(size_t i)
{
	count(piece_at(i), -1);
	count_spare(piece_at(i), -1);
	pthread_mutex_lock(&changing);
	pin_sorted_remove(&pieces, i);
	pthread_mutex_unlock(&changing);
}

/* No piece reaches across an address from now on; without memory for that, one may. */
static void split(uintptr_t addr)
{
	size_t i = first_above(addr);
	struct piece first, rest;

	if (!piece_at(i) || piece_at(i)->start >= addr)
		return;
	first = rest = *piece_at(i);
	first.end = rest.start = addr;
	if (insert(i + 1, rest))
		change(i, first);
}

/* What could be one piece is, so that they do not get more with time. */
static void join(uintptr_t addr)
{
	size_t i = pin_sorted_from(&pieces, addr);
	struct piece *right = piece_at(i), *left = i ? piece_at(i - 1) : NULL, both;

	if (!left || !right || left->end != right->start || left->users != right->users ||
	    left->watcher != right->watcher || left->is_gone != right->is_gone)
		return;
	both = *left;
	both.end = right->end;
	change(i - 1, both);
	drop(i);
}

/* The descriptor with the fewest pieces, not opened before it is wanted. */
static unsigned least_busy(void)
{
	unsigned least = PIN_UFFD_HEAP + 1;

	for (unsigned n = least; n < n_watchers && watched_by[least]; n++)
		if (watched_by[n] < watched_by[least])
			least = n;
	return least;
}

/*
 * A piece with others of its mapping around it makes two more mappings. A quarter of those
 * there may be leave the program half of them.
 */
static bool is_full(void)
{
	static size_t most;

	if (!most)
		most = pin_os_most_mappings() / 4;
	return n_watched >= most;
}

/*
 * Some of it is watched already: a page of hugetlbfs of which another piece has a part, or what
 * the program has moved or made larger by mremap(). Only the same descriptor can have the rest,
 * too.
 */
static int watch_by_any(struct pin_pages range, uint16_t *watcher)
{
	int error = -EBUSY;

	for (unsigned n = PIN_UFFD_HEAP; error && n < n_opened; n++) {
		*watcher = (uint16_t)n;
		error = pin_uffd_watch(n, range.start, range.end - range.start);
	}
	return error;
}

/* Returns an errno value below 0 as pin_uffd_watch(), or 0 and by which descriptor. */
static int watch(struct pin_pages range, uint16_t *watcher)
{
	int error;

	if (is_full())
		return -ENOMEM;
	for (;;) {
		*watcher = least_busy();
		error = pin_uffd_watch(*watcher, range.start, range.end - range.start);
		if (error != -EMFILE || *watcher <= PIN_UFFD_HEAP + 1)
			break;
		n_watchers = *watcher;
	}
	if (!error && *watcher >= n_opened)
		n_opened = *watcher + 1;
	return error == -EBUSY ? watch_by_any(range, watcher) : error;
}

static bool can_watch_page(uintptr_t page)
{
	uint16_t watcher;

	return !watch((struct pin_pages){page, page + PIN_PAGE}, &watcher);
}

/* Tries for one registration: the page where a file ends and what is not of it begins. */
#define MOST_TRIES 64

/* Of two parts of a range: that it was not mapped is what may change. */
static int worse(int error, int other)
{
	return error == -EFAULT || !other ? error : other;
}

/*
 * A gap between pieces becomes one or more. A part of it may be pages of a file: the halves are
 * tried, as long as one of their ends can be watched. Returns 0 when all of it is.
 */
static int add_gap(struct pin_pages gap, unsigned *tries)
{
	size_t n_pages = (gap.end - gap.start) / PIN_PAGE;
	struct piece piece = {gap.start, gap.end, 1, NOBODY, false};
	uintptr_t middle = gap.start + n_pages / 2 * PIN_PAGE;
	int error = watch(gap, &piece.watcher);

	if (error) {
		piece.watcher = NOBODY;
		if (n_pages > 1 && *tries < MOST_TRIES &&
		    (can_watch_page(gap.start) || can_watch_page(gap.end - PIN_PAGE))) {
			++*tries;
			error = add_gap((struct pin_pages){gap.start, middle}, tries);
			return worse(error,
				     add_gap((struct pin_pages){middle, gap.end}, tries));
		}
	}
	piece.is_gone = error == -EFAULT;
	insert(first_above(gap.start), piece);
	return error;
}

/*
 * Once more, where the program may have put something else: then it is not watched, or, moved
 * from elsewhere, by another descriptor.
 */
static int renew(size_t i)
{
	struct piece piece = *piece_at(i);
	struct pin_pages range = {piece.start, piece.end};
	uint16_t watcher = piece.watcher;
	int error = -EBUSY;

	if (watcher != NOBODY)
		error = pin_uffd_watch(watcher, range.start, range.end - range.start);
	if (error == -EBUSY)
		error = watch(range, &watcher);
	if (!error)
		piece.watcher = watcher;
	piece.is_gone = error == -EFAULT || (error && piece.watcher != NOBODY);
	change(i, piece);
	return error;
}

static int add_user(size_t i)
{
	struct piece piece = *piece_at(i);

	piece.users++;
	change(i, piece);
	return piece.watcher == NOBODY && !piece.is_gone ? -EINVAL : renew(i);
}

static void add_descriptors(struct pin_pages range, uint64_t *descriptors)
{
	for (size_t i = first_above(range.start); piece_at(i) && piece_at(i)->start < range.end;
	     i++)
		if (piece_at(i)->watcher != NOBODY)
			*descriptors |= (uint64_t)1 << piece_at(i)->watcher;
}

int pin_pieces_add(struct pin_pages range, uint64_t *descriptors)
{
	uintptr_t at = range.start;
	unsigned tries = 0;
	int error = 0;

	split(range.start);
	split(range.end);
	while (at < range.end) {
		size_t i = first_above(at);
		struct piece *piece = piece_at(i);
		uintptr_t next = piece && piece->start < range.end ? piece->start : range.end;

		if (next > at) {
			error = worse(error, add_gap((struct pin_pages){at, next}, &tries));
			at = next;
			continue;
		}
		error = worse(error, add_user(i));
		at = piece->end;
	}
	add_descriptors(range, descriptors);
	join(range.start);
	join(range.end);
	return error;
}

int pin_pieces_renew(struct pin_pages range, uint64_t *descriptors)
{
	int error = 0;

	for (size_t i = first_above(range.start); piece_at(i) && piece_at(i)->start < range.end;
	     i++)
		error = worse(error, renew(i));
	add_descriptors(range, descriptors);
	return error;
}

/* Returns whether it is not there any more. */
static bool give_up(size_t i)
{
	struct piece *piece = piece_at(i);

	/* Also of what is gone: it may have been moved from, and still be mapped. */
	if (piece->watcher != NOBODY &&
	    !pin_uffd_unwatch(piece->watcher, piece->start, piece->end - piece->start))
		return false;
	drop(i);
	return true;
}

/*
 * To end a watch the kernel visits every page, and Linux 6.1 makes the next write to each a
 * fault, for which a message when the program unmaps them is a good price from some size on.
 */
static bool is_worth_keeping(const struct piece *piece)
{
	return piece->watcher != NOBODY && !piece->is_gone &&
	       piece->end - piece->start >= PIN_PIECES_LARGE;
}

static void limit_spare(void)
{
	for (size_t looked = 0; n_spare > PIN_PIECES_SPARE && looked <= pieces.n; looked++) {
		struct piece *piece = piece_at(hand);

		if (!piece)
			hand = 0;
		else if (piece->users || !give_up(hand))
			hand++;
	}
}

static void remove_user(size_t i)
{
	struct piece piece = *piece_at(i);

	piece.users--;
	change(i, piece);
	if (!piece.users && !is_worth_keeping(&piece))
		give_up(i);
}

void pin_pieces_remove(struct pin_pages range)
{
	uintptr_t at = range.start;

	split(range.start);
	split(range.end);
	for (;;) {
		size_t i = first_above(at);
		struct piece *piece = piece_at(i);

		if (!piece || piece->start >= range.end)
			break;
		at = piece->end;
		remove_user(i);
	}
	join(range.start);
	join(range.end);
	limit_spare();
}

void pin_pieces_lose(unsigned n, struct pin_pages range)
{
	split(range.start);
	split(range.end);
	for (size_t i = first_above(range.start); piece_at(i) && piece_at(i)->start < range.end;
	     i++) {
		struct piece piece = *piece_at(i);

		piece.is_gone = piece.is_gone || piece.watcher == n;
		change(i, piece);
	}
}

/* As far as no piece in a range is that descriptor's, and there. */
static struct pin_pages next_strange(unsigned n, struct pin_pages range)
{
	struct pin_pages found = range;

	for (size_t i = first_above(range.start); piece_at(i) && piece_at(i)->start < range.end;
	     i++) {
		const struct piece *piece = piece_at(i);

		if (piece->watcher != n || piece->is_gone)
			continue;
		if (piece->start > found.start) {
			found.end = piece->start;
			break;
		}
		found.start = piece->end;
	}
	return found;
}

/*
 * Whoever registers there waits until this is done if it gets in the way (foreign.c), so
 * nothing that somebody needs is watched by n and not in the books.
 */
bool pin_pieces_give_up_strange(unsigned n, struct pin_pages range, uint64_t *descriptors)
{
	struct pin_pages strange;
	bool all = true;

	split(range.start);
	split(range.end);
	while ((strange = next_strange(n, range)).start < range.end) {
		if (!pin_uffd_unwatch(n, strange.start, strange.end - strange.start))
			all = false;
		else
			pin_pieces_renew(strange, descriptors);
		range.start = strange.end;
	}
	join(range.end);
	return all;
}

/* With what a split has left of it on either side. */
void pin_pieces_give_up_spare(unsigned n, struct pin_pages range)
{
	size_t i = first_above(range.start);

	if (i && piece_at(i - 1)->end == range.start)
		i--;
	while (piece_at(i) && piece_at(i)->start <= range.end) {
		if (piece_at(i)->users || piece_at(i)->watcher != n || !give_up(i))
			i++;
	}
}

bool pin_pieces_watched(struct pin_pages range)
{
	uintptr_t at = range.start;

	while (at < range.end) {
		struct piece *piece = piece_at(first_above(at));

		if (!piece || piece->start > at || !piece->users || piece->watcher == NOBODY ||
		    piece->is_gone)
			return false;
		at = piece->end;
	}
	return true;
}

size_t pin_pieces_list(unsigned n, uintptr_t from, struct pin_pages *ranges, size_t n_ranges)
{
	size_t found = 0;

	pthread_mutex_lock(&changing);
	for (size_t i = first_above(from); found < n_ranges && piece_at(i); i++)
		if (piece_at(i)->watcher == n && piece_at(i)->users)
			ranges[found++] = (struct pin_pages){piece_at(i)->start,
							     piece_at(i)->end};
	pthread_mutex_unlock(&changing);
	return found;
}

void pin_pieces_watch_heap(struct pin_pages range)
{
	pin_uffd_watch(PIN_UFFD_HEAP, range.start, range.end - range.start);
}

void pin_pieces_forget(void)
{
	pthread_mutex_init(&changing, NULL);
	pieces.n = n_spare = hand = 0;
	memset(watched_by, 0, sizeof watched_by);
	n_watched = 0;
	n_watchers = PIN_UFFDS;
	n_opened = 0;
}
