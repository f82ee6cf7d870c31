/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/moves.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "allocator/pages.h"

#include <errno.h>
#include <string.h>

#define PIECE PIN_MOVES_PIECE

PIN_WRITTEN_FIRST static bool (*may_move_now)(const void *addr, size_t n_bytes);

/* Set for good by pin_moves_end(), and when the kernel has refused. */
PIN_WRITTEN_FIRST _Atomic bool pin_moves_have_ended;

/*
 * Each move may make two mappings more, and the kernel has a maximum, of which the program has
 * most. Many moves make none, so that they are counted again from time to time; if there are
 * too many then, it is looked again after as many moves that were not made. Written under the
 * lock of the run map.
 */
#define SHARE_OF_MAPPINGS 8
#define LOOK_AGAIN	  4096
PIN_WRITTEN_FIRST static _Atomic size_t n_left, n_refused;

/*
 * An adapter that is not used by verbs (Slingshot, Omni-Path), KNEM or a GPU registers memory
 * without a call that is seen here: its registers are mapped then.
 */
static void count_mappings(void)
{
	bool has_device = false;
	size_t most = pin_os_most_mappings() / SHARE_OF_MAPPINGS;
	size_t has = pin_os_mappings(&has_device);

	if (has_device)
		pin_moves_end_now();
	pin_runs_take_lock();
	n_left = has < most ? (most - has + 1) / 2 : 0;
	n_refused = n_left ? 0 : LOOK_AGAIN;
	pin_runs_release_lock();
}

/*
 * Mappings are looked at when the address space has another size than before: moves do not
 * change it, what a program loads or maps does.
 */
void pin_moves_look(void)
{
	PIN_WRITTEN_FIRST static _Atomic size_t size_seen;
	size_t size;

	if (!pin_moves_possible() || atomic_load(&n_refused))
		return;
	size = pin_os_address_space();
	if (atomic_load(&n_left) && size && size == atomic_load(&size_seen))
		return;
	count_mappings();
	atomic_store(&size_seen, size);
}

static bool count_move(void)
{
	if (n_left) {
		n_left--;
		return true;
	}
	if (n_refused)
		n_refused--;
	return false;
}

/* Huge pages of the pool cannot move, and each step is a mapping of its own. */
bool pin_moves_possible(void)
{
	return !atomic_load_explicit(&pin_moves_have_ended, memory_order_relaxed) &&
	       pin_options.huge != PIN_HUGE_TLB;
}

int pin_moves_pages(uint32_t from, uint32_t to, uint32_t n_pages)
{
	size_t n_bytes = (size_t)n_pages << PIN_UNIT_SHIFT;
	int error;

	if (!pin_moves_possible() ||
	    (may_move_now && !may_move_now(pin_page_at(from), n_bytes)) || !count_move())
		return -ENOTSUP;
	error = pin_os_move(pin_page_at(from), pin_page_at(to), n_bytes);
	if (error)
		atomic_store(&pin_moves_have_ended, true);
	return error;
}

uint32_t pin_moves_piece(uint32_t page, uint32_t left)
{
	uint32_t n = PIECE - page % PIECE;

	return n < left ? n : left;
}

static void copy(uint32_t to, uint32_t from, uint32_t n_pages)
{
	memcpy(pin_page_at(to), pin_page_at(from), (size_t)n_pages << PIN_UNIT_SHIFT);
}

/* What the kernel does not move is copied. */
enum pin_moved pin_moves_block(uint32_t from, uint32_t to, uint32_t n_pages, uint32_t *lost)
{
	enum pin_moved moved = PIN_MOVED;
	uint32_t done, n;
	int error;

	for (done = 0; done < n_pages; done += n) {
		n = pin_moves_piece(from + done, n_pages - done);
		error = pin_moves_pages(from + done, to + done, n);
		if (error == -ENOMEM) {
			*lost = to + done;
			copy(from, to, done);
			return PIN_NOT_MOVED;
		}
		if (error) {
			moved = PIN_COPIED;
			copy(to + done, from + done, n);
		}
	}
	return moved;
}

void pin_moves_ask(bool (*may_move)(const void *addr, size_t n_bytes))
{
	pin_runs_take_lock();
	may_move_now = may_move;
	pin_runs_release_lock();
}

void pin_moves_end_now(void)
{
	pin_runs_take_lock();
	atomic_store(&pin_moves_have_ended, true);
	pin_runs_release_lock();
}
