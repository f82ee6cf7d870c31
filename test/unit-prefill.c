/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PINALLOC_PREALLOC: heap memory that is allocated, touched and registered before the program
 * communicates. Residency is asked of the machine's own kernel.
 */
#include <config.h>

#include "allocator/resident.h"
#include "allocator/os.h"
#include "regpool/keys.h"
#include "regpool/granule.h"
#include "regpool/state.h"
#include "regpool/userpool.h"
#include "test/fake-kernel.h"
#include "test/lines.h"
#include "test/spans.h"
#include "test/tap.h"

#include <string.h>
#include <sys/wait.h>

#define RESERVE (9 * PIECE) /* no multiple of threads or cells */

static struct pin_span *span;
static char *made;
static unsigned calls;

static unsigned given;

static bool is_there; /* memory */

/* The linker puts these in place of the library's (--wrap). */

void *__wrap_pin_segment_take(struct pin_segment_need *need)
{
	calls++;
	if (!is_there)
		return NULL;
	made = grow(&span, need->n_bytes);
	need->node = 0;
	return made;
}

void __wrap_pin_segment_give(void *segment, size_t n_bytes)
{
	given += segment == made && n_bytes == RESERVE;
}

void __wrap_pin_live_count(int64_t n_bytes)
{
}

/* Arms a PD in a process of its own: it is done once. Returns the line that is said of it. */
static const char *said(char *heap)
{
	static struct lines *lines;
	int status = -1;
	pid_t child;

	lines = mmap(NULL, sizeof *lines, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	child = fork();
	if (!child) {
		struct ibv_pd *pd = new_pd();

		*lines = lines_begin();
		for (int i = 0; i < 3; i++)
			pin_mr_deregister(reg(pd, heap, 64, RIGHTS));
		pin_domain_dealloc(new_pd());
		lines_end(lines);
		_exit(fake_verbs.live != 1 || lines->n != 1);
	}
	waitpid(child, &status, 0);
	return status ? "" : lines->text;
}

static void refused(char *heap)
{
	const char *line;

	pin_options.max_pinned = RESERVE - 1;
	line = said(heap);
	ok(strstr(line,
		  "PINALLOC_PREALLOC: 18.0 MiB of heap are not reserved: less may be pinned"),
	   "a reserve above the limit is not made, and one line says so");
	pin_options.max_pinned = SIZE_MAX;
	fake_kernel.memlock = 2 * RESERVE - 2;
	line = said(heap);
	ok(strstr(line, "less may be pinned"), "nor over that on locked memory");
	fake_kernel.memlock = SIZE_MAX;
	is_there = false;
	line = said(heap);
	ok(strstr(line, "there is not enough memory"), "and where there is no memory");
}

static bool is_resident(const char *p, size_t n_bytes)
{
	uint32_t found;

	return pin_resident_count((uintptr_t)p, n_bytes / PIN_PAGE, 1, &found) &&
	       found == n_bytes / PIN_PAGE;
}

static bool is_pinned_by(unsigned n)
{
	unsigned found = 0;

	for (struct pin_access_set *set = NULL; (set = pin_access_set_next(NULL, set));)
		for (size_t i = 0; i < RESERVE; i += PIECE) {
			uint32_t number = pin_keys_covering(set, made + i);

			found += number &&
				 pin_entry_covers(pin_entry_at(set, number), made + i, PIECE);
		}
	return found == n * (RESERVE / PIECE);
}

static void prefilled(char *heap)
{
	struct ibv_pd *pd = new_pd(), *other;
	unsigned tried;

	is_there = true;
	pin_mr_deregister(reg(pd, heap, 64, RIGHTS));
	ok(calls == 1 && made, "the first request makes the reserve");
	ok(given == 1, "malloc gets it");
	ok(is_resident(made, RESERVE) && !is_resident(heap + PIECE, PIECE),
	   "the reserve is touched, and nothing else");
	ok(is_pinned_by(1) && fake_verbs.registered == RESERVE + PIN_PAGE,
	   "the reserve is registered");
	tried = fake_verbs.tried;
	pin_mr_deregister(reg(pd, made + RESERVE / 2, RESERVE / 2, RIGHTS));
	ok(fake_verbs.tried == tried, "a request in it registers nothing");
	other = new_pd();
	pin_mr_deregister(reg(other, heap, 64, RIGHTS));
	ok(calls == 1 && is_pinned_by(2), "the next PD gets the same memory");
	ok(!pin_domain_dealloc(other) && is_pinned_by(1),
	   "deallocating that PD deregisters it there");
	ok(!pin_domain_dealloc(pd) && !pin_state.registered && !pin_state.registered &&
		   calls == 1,
	   "nothing is left");
}

int main(void)
{
	struct pin_span *other = NULL;
	char *heap, *guarded;

	setenv("PINALLOC_PREALLOC", "18M", 1);
	if (!lazy_pool())
		return 99;
	heap = grow(&other, 2 * PIECE);
	/* It would begin here, but there is a page that may not be touched. */
	guarded = grow(&span, PIECE);
	if (mprotect(guarded + PIECE / 2, PIN_PAGE, PROT_NONE))
		return 99;
	is_there = true;
	pin_hooks.note_armed = pin_userpool_preallocate;
	refused(heap);
	ok(!calls, "those tests ran in other processes");
	prefilled(heap);
	return done_testing();
}
