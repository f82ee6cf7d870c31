/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/gone.h"
#include "allocator/os.h"
#include "regpool/books.h"
#include "regpool/uffd.h"

/*
 * Pages of MADV_DONTNEED go, all at once with the lock of the process's mappings, after its
 * caller has been woken. Nothing says when: it has been woken, it has had a while to ask for
 * the lock, and then somebody else has got it, twice, as a writer may pass by who waits
 * (kernel/locking/rwsem.c). Pages of shared memory go without that lock (madvise_remove() in
 * mm/madvise.c).
 */
enum stage { ASLEEP, WOKEN, AWAY };
#define WHILE_NS 2000000ull
#define MOST_NS	 (PIN_UFFD_PATIENCE_MS * 1000000ull)

#define MOST 32
static struct task {
	struct pin_gone it;
	enum stage stage;
	uint64_t taken_ns, woken_ns;
	bool is_awaited;
} left[MOST];
static unsigned n_left;

static enum stage next_stage(struct task *task, uint64_t now)
{
	switch (task->stage) {
	case ASLEEP:
		task->woken_ns = now;
		return pin_uffd_is_asleep(task->it.n) ? ASLEEP : WOKEN;
	case WOKEN:
		if (now - task->woken_ns < WHILE_NS)
			return WOKEN;
		pin_os_await_mappings();
		pin_os_await_mappings();
		return AWAY;
	default:
		return AWAY;
	}
}

static bool awaits_pages(struct task *task)
{
	uint64_t now = pin_os_now_ns();

	if (task->it.what != UFFD_EVENT_REMOVE || now - task->taken_ns >= MOST_NS)
		return false;
	task->stage = next_stage(task, now);
	/* One that is in use again looks as if it had not gone. */
	return task->stage != AWAY || pin_uffd_is_shared(task->it.to - PIN_PAGE);
}

/* As far as there is no need to wait for whoever registers; false: something is left. */
static bool put_right(const struct pin_gone *it, uint64_t *again)
{
	uintptr_t moved_end = it->moved_to + (it->to - it->from);

	switch (it->what) {
	case UFFD_EVENT_REMOVE:
		return pin_books_discard(it->n, it->from, it->to, again);
	case UFFD_EVENT_UNMAP:
		return pin_books_lose(it->n, it->from, it->to);
	case UFFD_EVENT_REMAP:
		return pin_books_lose(it->n, it->from, it->to) &&
		       pin_books_move_in(it->n, it->moved_to, moved_end, again);
	default:
		return true;
	}
}

unsigned pin_gone_work(uint64_t *again)
{
	for (unsigned i = 0; i < n_left;) {
		left[i].is_awaited = awaits_pages(&left[i]);
		if (!left[i].is_awaited && put_right(&left[i].it, again))
			left[i] = left[--n_left];
		else
			i++;
	}
	return n_left;
}

void pin_gone_begin(struct pin_gone gone, uint64_t *again)
{
	while (n_left == MOST && pin_gone_work(again) == MOST)
		pin_os_sleep_ms(1);
	left[n_left++] = (struct task){
		.it = gone, .taken_ns = pin_os_now_ns(), .is_awaited = true};
}

bool pin_gone_is_awaited(unsigned n)
{
	for (unsigned i = 0; i < n_left; i++)
		if (left[i].it.n == n &&
		    (left[i].is_awaited || left[i].it.what == UFFD_EVENT_REMAP))
			return true;
	return false;
}

void pin_gone_leave(void)
{
	n_left = 0;
}
