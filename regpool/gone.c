/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/gone.h"
#include "allocator/os.h"
#include "regpool/books.h"
#include "regpool/uffd.h"

/*
 * The pages of MADV_DONTNEED are freed, under the lock of the process's mappings, after the
 * caller was woken, and nothing tells when. They are gone once the caller was woken, has had
 * some time to request that lock, and this thread has got the lock twice since: a waiting
 * writer can be overtaken once (kernel/locking/rwsem.c). Pages of shared memory are freed
 * without that lock (madvise_remove() in mm/madvise.c).
 */
enum stage { ASLEEP, WOKEN, GONE };
#define WOKEN_NS   2000000ull
#define TIMEOUT_NS (PIN_UFFD_TIMEOUT_MS * 1000000ull)

#define MAX_TASKS 32
static struct task {
	struct pin_gone event;
	enum stage stage;
	uint64_t taken_ns, woken_ns;
	bool is_awaited;
} tasks[MAX_TASKS];
static unsigned n_tasks;

static enum stage next_stage(struct task *task, uint64_t now)
{
	switch (task->stage) {
	case ASLEEP:
		task->woken_ns = now;
		return pin_uffd_is_asleep(task->event.n) ? ASLEEP : WOKEN;
	case WOKEN:
		if (now - task->woken_ns < WOKEN_NS)
			return WOKEN;
		pin_os_await_mappings();
		pin_os_await_mappings();
		return GONE;
	default:
		return GONE;
	}
}

static bool is_awaiting_pages(struct task *task)
{
	uint64_t now = pin_os_now_ns();

	if (task->event.what != UFFD_EVENT_REMOVE || now - task->taken_ns >= TIMEOUT_NS)
		return false;
	task->stage = next_stage(task, now);
	/*
	 * Pages of shared memory are checked one by one; a page in use again looks as if it had
	 * not gone.
	 */
	return task->stage != GONE || pin_uffd_is_shared(task->event.to - PIN_PAGE);
}

/*
 * Updates the books without waiting for their lock. Returns false if something is left to do.
 */
static bool update_books(const struct pin_gone *event, uint64_t *again)
{
	uintptr_t moved_end = event->moved_to + (event->to - event->from);

	switch (event->what) {
	case UFFD_EVENT_REMOVE:
		return pin_books_note_discarded(event->n, event->from, event->to, again);
	case UFFD_EVENT_UNMAP:
		return pin_books_note_unmapped(event->n, event->from, event->to);
	case UFFD_EVENT_REMAP:
		return pin_books_note_unmapped(event->n, event->from, event->to) &&
		       pin_books_note_moved_in(event->n, event->moved_to, moved_end, again);
	default:
		return true;
	}
}

unsigned pin_gone_retry(uint64_t *again)
{
	for (unsigned i = 0; i < n_tasks;) {
		tasks[i].is_awaited = is_awaiting_pages(&tasks[i]);
		if (!tasks[i].is_awaited && update_books(&tasks[i].event, again))
			tasks[i] = tasks[--n_tasks];
		else
			i++;
	}
	return n_tasks;
}

void pin_gone_add(struct pin_gone gone, uint64_t *again)
{
	while (n_tasks == MAX_TASKS && pin_gone_retry(again) == MAX_TASKS)
		pin_os_sleep_ms(1);
	tasks[n_tasks++] = (struct task){
		.event = gone, .taken_ns = pin_os_now_ns(), .is_awaited = true};
}

bool pin_gone_is_awaited(unsigned n)
{
	for (unsigned i = 0; i < n_tasks; i++)
		if (tasks[i].event.n == n &&
		    (tasks[i].is_awaited || tasks[i].event.what == UFFD_EVENT_REMAP))
			return true;
	return false;
}

void pin_gone_reset(void)
{
	n_tasks = 0;
}
