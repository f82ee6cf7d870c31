/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/pieces.h"
#include "allocator/os.h"
#include "regpool/sorted.h"
#include "regpool/uffd.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define NOBODY UINT16_MAX /* it cannot be watched */

struct piece {
	uintptr_t start, end;
	uint32_t users;	  /* number of registrations; 0: the piece is spare */
	uint16_t watcher; /* descriptor number, or NOBODY */
	bool is_gone;	  /* unmapped; what is mapped there next is not watched yet */
};
static struct pin_sorted pieces = {.element_size = sizeof(struct piece)};

/*
 * Number of pieces for each descriptor and in total; descriptors that can be opened, and are.
 */
static uint32_t watched_by[PIN_UFFDS], n_watched;
static unsigned n_watchers = PIN_UFFDS, n_opened;

/* Number of pieces without users, and where to look for the next one to drop. */
static size_t n_spare, next_to_drop;

/*
 * Held for each change, and while the thread that notifies listeners lists pieces. Never held
 * while the kernel is asked for anything.
 */
static pthread_mutex_t listing_lock = PTHREAD_MUTEX_INITIALIZER;

static struct piece *piece_at(size_t i)
{
	return pin_sorted_at(&pieces, i);
}

/* The index of the first piece that ends above an address. */
static size_t first_above(uintptr_t addr)
{
	size_t i = pin_sorted_lower_bound(&pieces, addr);

	return i && piece_at(i - 1)->end > addr ? i - 1 : i;
}

static void count_spare(const struct piece *piece, int n)
{
	n_spare += piece->users ? 0 : (size_t)n;
}

static void count_watched(const struct piece *piece, int n)
{
	if (piece->watcher == NOBODY)
		return;
	watched_by[piece->watcher] += (uint32_t)n;
	n_watched += (uint32_t)n;
}

static bool insert_piece(size_t i, struct piece piece)
{
	bool inserted;

	pthread_mutex_lock(&listing_lock);
	inserted = pin_sorted_insert(&pieces, i, &piece);
	pthread_mutex_unlock(&listing_lock);
	if (!inserted)
		return false;
	count_watched(&piece, 1);
	count_spare(&piece, 1);
	return true;
}

static void change_piece(size_t i, struct piece to)
{
	count_watched(piece_at(i), -1);
	count_spare(piece_at(i), -1);
	pthread_mutex_lock(&listing_lock);
	*piece_at(i) = to;
	pthread_mutex_unlock(&listing_lock);
	count_watched(&to, 1);
	count_spare(&to, 1);
}

static void remove_piece(size_t i)
{
	count_watched(piece_at(i), -1);
	count_spare(piece_at(i), -1);
	pthread_mutex_lock(&listing_lock);
	pin_sorted_remove(&pieces, i);
	pthread_mutex_unlock(&listing_lock);
}

/* Splits the piece that contains an address, if there is memory for it. */
static void split_at(uintptr_t addr)
{
	size_t i = first_above(addr);
	struct piece first, rest;

	if (!piece_at(i) || piece_at(i)->start >= addr)
		return;
	first = rest = *piece_at(i);
	first.end = rest.start = addr;
	if (insert_piece(i + 1, rest))
		change_piece(i, first);
}

/* Joins two equal pieces, so that their number does not grow with time. */
static void join_at(uintptr_t addr)
{
	size_t i = pin_sorted_lower_bound(&pieces, addr);
	struct piece *right = piece_at(i), *left = i ? piece_at(i - 1) : NULL, both;

	if (!left || !right || left->end != right->start || left->users != right->users ||
	    left->watcher != right->watcher || left->is_gone != right->is_gone)
		return;
	both = *left;
	both.end = right->end;
	change_piece(i - 1, both);
	remove_piece(i);
}

/* The descriptor with the fewest pieces. A new one is opened only if all others are in use. */
static unsigned least_busy(void)
{
	unsigned least = PIN_UFFD_HEAP + 1;

	for (unsigned n = least; n < n_watchers && watched_by[least]; n++)
		if (watched_by[n] < watched_by[least])
			least = n;
	return least;
}

/*
 * Watching part of a mapping adds up to two mappings. A quarter of the permitted number
 * therefore leaves at least half of them to the program.
 */
static bool has_reached_limit(void)
{
	static size_t most;

	if (!most)
		most = pin_os_most_mappings() / 4;
	return n_watched >= most;
}

/*
 * Some of the range is watched already: a part of a hugetlbfs page that belongs to another
 * piece, or memory that the program has moved or enlarged with mremap(). Only the same
 * descriptor can watch the rest.
 */
static int watch_by_any_descriptor(struct pin_pages range, uint16_t *watcher)
{
	int error = -EBUSY;

	for (unsigned n = PIN_UFFD_HEAP; error && n < n_opened; n++) {
		*watcher = (uint16_t)n;
		error = pin_uffd_watch(n, range.start, range.end - range.start);
	}
	return error;
}

/*
 * Returns 0 and sets *watcher to the descriptor; otherwise a negative errno as
 * pin_uffd_watch().
 */
static int watch_range(struct pin_pages range, uint16_t *watcher)
{
	int error;

	if (has_reached_limit())
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
	return error == -EBUSY ? watch_by_any_descriptor(range, watcher) : error;
}

static bool can_watch_page(uintptr_t page)
{
	uint16_t watcher;

	return !watch_range((struct pin_pages){page, page + PIN_PAGE}, &watcher);
}

/* Maximum number of attempts for one registration to find where the pages of a file end. */
#define MOST_TRIES 64

/* The more important error of two parts of a range: that one was not mapped may change. */
static int worse(int error, int other)
{
	return error == -EFAULT || !other ? error : other;
}

/*
 * Makes a gap between pieces into one or more pieces. If part of it may be pages of a file,
 * tries its halves as long as one of their ends can be watched. Returns 0 if all of it is
 * watched.
 */
static int add_gap(struct pin_pages gap, unsigned *tries)
{
	size_t n_pages = (gap.end - gap.start) / PIN_PAGE;
	struct piece piece = {gap.start, gap.end, 1, NOBODY, false};
	uintptr_t middle = gap.start + n_pages / 2 * PIN_PAGE;
	int error = watch_range(gap, &piece.watcher);

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
	insert_piece(first_above(gap.start), piece);
	return error;
}

/*
 * Watches a piece again, because the program may have mapped something else there: then it is
 * not watched or, if moved from elsewhere, watched by another descriptor.
 */
static int renew_piece(size_t i)
{
	struct piece piece = *piece_at(i);
	struct pin_pages range = {piece.start, piece.end};
	uint16_t watcher = piece.watcher;
	int error = -EBUSY;

	if (watcher != NOBODY)
		error = pin_uffd_watch(watcher, range.start, range.end - range.start);
	if (error == -EBUSY)
		error = watch_range(range, &watcher);
	if (!error)
		piece.watcher = watcher;
	piece.is_gone = error == -EFAULT || (error && piece.watcher != NOBODY);
	change_piece(i, piece);
	return error;
}

static int add_user(size_t i)
{
	struct piece piece = *piece_at(i);

	piece.users++;
	change_piece(i, piece);
	return piece.watcher == NOBODY && !piece.is_gone ? -EINVAL : renew_piece(i);
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

	split_at(range.start);
	split_at(range.end);
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
	join_at(range.start);
	join_at(range.end);
	return error;
}

int pin_pieces_renew(struct pin_pages range, uint64_t *descriptors)
{
	int error = 0;

	for (size_t i = first_above(range.start); piece_at(i) && piece_at(i)->start < range.end;
	     i++)
		error = worse(error, renew_piece(i));
	add_descriptors(range, descriptors);
	return error;
}

/* Returns whether the piece was removed. */
static bool unwatch_piece(size_t i)
{
	struct piece *piece = piece_at(i);

	/* Also if it is gone: it may have been moved away and still be mapped. */
	if (piece->watcher != NOBODY &&
	    !pin_uffd_unwatch(piece->watcher, piece->start, piece->end - piece->start))
		return false;
	remove_piece(i);
	return true;
}

/*
 * Ending a watch makes the kernel visit every page and, in Linux 6.1, makes the next write to
 * each a fault. From this size on it is cheaper to keep the watch and take one message when the
 * program unmaps the piece.
 */
static bool is_worth_keeping(const struct piece *piece)
{
	return piece->watcher != NOBODY && !piece->is_gone &&
	       piece->end - piece->start >= PIN_PIECES_LARGE;
}

static void limit_spare(void)
{
	for (size_t looked = 0; n_spare > PIN_PIECES_SPARE && looked <= pieces.n; looked++) {
		struct piece *piece = piece_at(next_to_drop);

		if (!piece)
			next_to_drop = 0;
		else if (piece->users || !unwatch_piece(next_to_drop))
			next_to_drop++;
	}
}

static void remove_user(size_t i)
{
	struct piece piece = *piece_at(i);

	piece.users--;
	change_piece(i, piece);
	if (!piece.users && !is_worth_keeping(&piece))
		unwatch_piece(i);
}

void pin_pieces_remove(struct pin_pages range)
{
	uintptr_t at = range.start;

	split_at(range.start);
	split_at(range.end);
	for (;;) {
		size_t i = first_above(at);
		struct piece *piece = piece_at(i);

		if (!piece || piece->start >= range.end)
			break;
		at = piece->end;
		remove_user(i);
	}
	join_at(range.start);
	join_at(range.end);
	limit_spare();
}

void pin_pieces_note_unmapped(unsigned n, struct pin_pages range)
{
	split_at(range.start);
	split_at(range.end);
	for (size_t i = first_above(range.start); piece_at(i) && piece_at(i)->start < range.end;
	     i++) {
		struct piece piece = *piece_at(i);

		piece.is_gone = piece.is_gone || piece.watcher == n;
		change_piece(i, piece);
	}
}

/* The next part of a range without a mapped piece that belongs to descriptor n. */
static struct pin_pages next_stray(unsigned n, struct pin_pages range)
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
 * A registration that conflicts waits until this is done (foreign.c), so what n watches but the
 * pieces do not show is not needed by anyone.
 */
bool pin_pieces_drop_stray(unsigned n, struct pin_pages range, uint64_t *descriptors)
{
	struct pin_pages strange;
	bool all = true;

	split_at(range.start);
	split_at(range.end);
	while ((strange = next_stray(n, range)).start < range.end) {
		if (!pin_uffd_unwatch(n, strange.start, strange.end - strange.start))
			all = false;
		else
			pin_pieces_renew(strange, descriptors);
		range.start = strange.end;
	}
	join_at(range.end);
	return all;
}

/* Also the neighbours that a split has left on either side. */
void pin_pieces_drop_spare(unsigned n, struct pin_pages range)
{
	size_t i = first_above(range.start);

	if (i && piece_at(i - 1)->end == range.start)
		i--;
	while (piece_at(i) && piece_at(i)->start <= range.end) {
		if (piece_at(i)->users || piece_at(i)->watcher != n || !unwatch_piece(i))
			i++;
	}
}

bool pin_pieces_are_watched(struct pin_pages range)
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

	pthread_mutex_lock(&listing_lock);
	for (size_t i = first_above(from); found < n_ranges && piece_at(i); i++)
		if (piece_at(i)->watcher == n && piece_at(i)->users)
			ranges[found++] = (struct pin_pages){piece_at(i)->start,
							     piece_at(i)->end};
	pthread_mutex_unlock(&listing_lock);
	return found;
}

void pin_pieces_watch_heap(struct pin_pages range)
{
	pin_uffd_watch(PIN_UFFD_HEAP, range.start, range.end - range.start);
}

void pin_pieces_reset(void)
{
	pthread_mutex_init(&listing_lock, NULL);
	pieces.n = n_spare = next_to_drop = 0;
	memset(watched_by, 0, sizeof watched_by);
	n_watched = 0;
	n_watchers = PIN_UFFDS;
	n_opened = 0;
}
