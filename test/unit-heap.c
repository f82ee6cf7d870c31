/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The heap in a plain program: it grows by what it lacks, and free memory coalesces with its
 * neighbours.
 */
#include <config.h>

#include "allocator/resident.h"
#include "allocator/blocks.h"
#include "allocator/hooks.h"
#include "allocator/large.h"
#include "allocator/os.h"
#include "allocator/reserve.h"
#include "allocator/span.h"
#include "allocator/start.h"
#include "test/asleep.h"
#include "test/beside.h"
#include "test/blocks.h"
#include "test/tap.h"

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The linker puts these in place of the library's (--wrap). */
bool __real_pin_os_has_swap(void);
int __real_pin_os_resident(const void *addr, size_t n_pages, unsigned char *is_there);

static bool is_swapped; /* all memory */

bool __wrap_pin_os_has_swap(void)
{
	return is_swapped || __real_pin_os_has_swap();
}

int __wrap_pin_os_resident(const void *addr, size_t n_pages, unsigned char *is_there)
{
	if (!is_swapped)
		return __real_pin_os_resident(addr, n_pages, is_there);
	memset(is_there, 0, n_pages);
	return 0;
}

static size_t resident(const char *p, size_t n)
{
	uint32_t found;

	return pin_resident_count((uintptr_t)p, n / PIN_PAGE, 1, &found) ? found : SIZE_MAX;
}

/* Larger than what is free anywhere: it is at the end of the heap. */
static char *at_end(size_t *n)
{
	*n = pin_span_bytes();
	return malloc(*n);
}

static void zeroes_at_end(void)
{
	size_t n, more = 32 * PIN_MIB;
	char *p = at_end(&n), *q;

	memset(p, 0xff, n);
	for (size_t i = 0; i < n; i += PIN_PAGE)
		p[i] = 0;
	free(p);
	q = calloc(1, n + more);
	ok(q == p && resident(q + n, more) < more / PIN_PAGE / 8,
	   "calloc does not touch memory that was never used: %zu pages",
	   resident(q + n, more));
	ok(is_filled(q, 0, n + more), "calloc clears the part that was used before");
	p = calloc(1, n + 2 * more);
	ok(p > q && resident(p, n) < n / PIN_PAGE / 4,
	   "calloc clears nothing beyond the memory used before");
	q[n] = 1;
	free(q);
	is_swapped = true;
	q = calloc(1, n + more);
	ok(is_filled(q, 0, n + more), "and what is swapped out, too");
	is_swapped = false;
	free(p);
	free(q);
}

/* What a heap that begins with this setting makes of it. */
static int anew(const char *what, const char *top_pad)
{
	const struct rlimit limit = {64 * PIN_MIB, 64 * PIN_MIB};
	int status = 0;
	pid_t child = fork();

	if (!child) {
		if (!strcmp(what, "limited"))
			setrlimit(RLIMIT_DATA, &limit);
		setenv("MALLOC_TOP_PAD_", top_pad, 1);
		execl("/proc/self/exe", "unit-heap", what, NULL);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

static void first_steps(void)
{
	ok(pin_span_count() == 1 && pin_span_steps() == 1 && pin_span_bytes() == 8 * PIN_MIB,
	   "the first growth step is 8 MiB");
	ok(anew("first", "4M") == 8, "so it is with a smaller MALLOC_TOP_PAD_");
	ok(anew("first", "32M") == 32, "a larger one raises the first step");
	ok(anew("first", "1G") == 64, "but not beyond 64 MiB");
	ok(anew("limited", "0") == 4, "a sixteenth of what the heap may get is its most");
}

static void steps(void)
{
	size_t largest = 0, least = SIZE_MAX, bytes = pin_span_bytes(), was;

	/* What was freed before is used first. */
	for (unsigned end = pin_span_steps() + 40; pin_span_steps() < end;) {
		was = bytes;
		if (!malloc(PIN_MIB))
			break;
		bytes = pin_span_bytes();
		if (bytes == was)
			continue;
		largest = bytes - was > largest ? bytes - was : largest;
		least = (bytes - was) * 9 < least ? (bytes - was) * 9 : least;
	}
	ok(largest == 64 * PIN_MIB, "small requests grow the heap by at most 64 MiB: %zu",
	   largest);
	ok(least >= 64 * PIN_MIB, "a step is at least a share of the heap: %zu", least);
}

static void missing_part(void)
{
	size_t n, bytes;
	char *p;

	p = at_end(&n);
	free(p);
	bytes = pin_span_bytes();
	ok(bytes < 2 * n + PIN_GRANULE && bytes > n,
	   "a large block grows the heap by the memory that is missing");
	p = memalign(64 * PIN_MIB, n + 100 * PIN_MIB);
	ok(!((uintptr_t)p % (64 * PIN_MIB)) && pin_span_bytes() - bytes <= 166 * PIN_MIB,
	   "an aligned request grows it only by what it needs at the end: %zu",
	   pin_span_bytes() - bytes);
	free(p);
}

/* What was never touched stays so as long as possible. */
static void lowest_first(void)
{
	char *blocks[33], *p, *last = NULL, *longer;
	bool ascend = true;

	in_a_row(blocks, 33, 8 * PIN_MIB);
	for (int i = 1; i < 33; i += 2)
		free(blocks[33 - 1 - i]);
	/* Lanes give the run map what they have of such lengths. */
	longer = malloc(16 * PIN_MIB);
	for (int i = 1; i < 33; i += 2, last = p) {
		p = malloc(8 * PIN_MIB);
		ascend &= p > last;
		blocks[i] = p;
	}
	ok(ascend && last < blocks[32], "of equal holes a block gets the lowest");
	for (int i = 0; i < 33; i++)
		free(blocks[i]);
	free(longer);
}

/*
 * More free memory before the end than is looked at, none of which fits; what is at the end
 * does, but would not wherever it began. For a process of its own.
 */
static bool aligned_at_end(void)
{
	size_t alignment = 64 * PIN_MIB, n = 72 * PIN_MIB, bytes;
	char *blocks[100], *last, *p;
	uintptr_t end;

	in_a_row(blocks, 100, n);
	for (int i = 0; i < 99; i += 2)
		if (-(uintptr_t)blocks[i] % alignment > n - alignment)
			free(blocks[i]);
	do
		last = malloc(100 * PIN_MIB);
	while (-(uintptr_t)last % alignment > 36 * PIN_MIB);
	end = (uintptr_t)last;
	free(last);
	bytes = pin_span_bytes();
	alarm(20);
	p = memalign(alignment, alignment);
	return (uintptr_t)p >= end && !((uintptr_t)p % alignment) && pin_span_bytes() == bytes;
}

/* Whether the kernel gives whoever reads an untouched page one of zeroes that all share. */
static bool has_zero_page(void)
{
	size_t before = pin_os_status("\nRssAnon:"), n = 4 * PIN_MIB;
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool is_zero = is_filled(p, 0, n) && pin_os_status("\nRssAnon:") - before < n / 2;

	munmap(p, n);
	return is_zero;
}

/* And must not be dumped. For a process of its own. */
static bool touches_few_pages(void)
{
	size_t most, read = has_zero_page() ? 0 : 20 * PIN_MIB;

	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (!geteuid() && setresuid(12345, 12345, 12345))
		return false;
	for (size_t n = 20 * PIN_MIB; n <= 300 * PIN_MIB; n += 280 * PIN_MIB) {
		char *p = memset(malloc(n), 1, PIN_MIB);

		p[n - 1] = 1;
		free(p);
		p = calloc(1, n);
		if (p[n - 1] || !is_filled(p, 0, PIN_MIB))
			return false;
		free(p);
	}
	most = pin_os_status("\nVmHWM:");
	return most && most < 9 * PIN_MIB + read;
}

/* No block is smaller than it says, and none is beyond all addresses. */
static bool is_right(char *p, size_t alignment, size_t n)
{
	bool right = p ? n < pin_reserve.size && malloc_usable_size(p) >= n &&
				     !((uintptr_t)p & (alignment - 1)) &&
				     pin_span_find(p, n ? n : 1)
		       : n > PIN_GIB || alignment > PIN_GIB;

	if (p && n && n < PIN_GIB)
		p[0] = p[n - 1] = 1;
	free(p);
	return right;
}

/* Sizes around all that is a border for somebody. */
static void borders(void)
{
	size_t at[] = {PIN_UNIT, PIN_SMALL_MOST,   PIN_GRANULE,	   pin_span_get(0)->length,
		       PIN_GIB,	 pin_reserve.size, PIN_UNIT << 32, PTRDIFF_MAX,
		       SIZE_MAX};
	size_t alignments[] = {16, PIN_UNIT, 2 * PIN_UNIT, PIN_GRANULE, PIN_GIB, PIN_TIB};
	unsigned wrong = 0;
	char *guard = malloc(PIN_UNIT * 8);

	memset(guard, 0x3c, PIN_UNIT * 8);
	for (size_t i = 0; i < PIN_ARRAY_SIZE(at); i++)
		for (size_t d = 0; d < 3 * PIN_UNIT; d += d < 3 ? 1 : PIN_UNIT / 2 - 1) {
			size_t near[] = {at[i] - d, at[i] + d};

			for (int k = 0; k < 2; k++) {
				wrong += !is_right(malloc(near[k]), 16, near[k]);
				wrong += !is_right(calloc(1, near[k]), 16, near[k]);
				wrong += !is_right(realloc(malloc(20000), near[k] | 1), 16,
						   near[k] | 1);
				for (size_t a = 0; a < PIN_ARRAY_SIZE(alignments); a++)
					wrong += !is_right(memalign(alignments[a], near[k]),
							   alignments[a], near[k]);
			}
		}
	ok(!wrong, "sizes at each border have a block of that size or none: %u", wrong);
	ok(is_filled(guard, 0x3c, PIN_UNIT * 8), "and no other block is touched");
	free(guard);
}

/* For a process that has it from its parent. */
static void shared(void)
{
	char *p = memset(malloc(PIN_MIB), 1, PIN_MIB);
	int status = 0;
	pid_t child = fork();

	if (!child)
		_exit(resident(p, PIN_MIB) == 0);
	waitpid(child, &status, 0);
	ok(WEXITSTATUS(status) && resident(p, PIN_MIB) == PIN_MIB / PIN_PAGE,
	   "memory that a child shares with its parent is not the child's");
	free(p);
}

/* Without files the kernel is asked, which says nothing of pages that are not mapped. */
static bool counts_whole_runs(void)
{
	const struct rlimit none = {0, 0};
	uint32_t counts[2], n = PIN_MIB / PIN_PAGE;
	char *p = mmap(NULL, 2 * PIN_MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	memset(p, 1, 2 * PIN_MIB);
	munmap(p + 2 * PIN_MIB - PIN_PAGE, PIN_PAGE);
	setrlimit(RLIMIT_NOFILE, &none);
	return pin_resident_count((uintptr_t)p, n, 2, counts) && counts[0] == n && !counts[1];
}

static void interrupt_once(void)
{
	static bool done;

	if (!done && (done = true))
		raise(SIGUSR1);
}

static void fork_again(int signal)
{
	(void)signal;
	if (!fork())
		_exit(0);
}

static bool fork_interrupted(void)
{
	signal(SIGUSR1, fork_again);
	pin_atfork_jemalloc(interrupt_once, interrupt_once, interrupt_once);
	alarm(60);
	if (!fork())
		_exit(0);
	return wait(NULL) > 0 && wait(NULL) > 0;
}

/* glibc's. */
void _IO_list_lock(void);
void _IO_list_unlock(void);

static _Atomic bool has_list;

/* As fflush(NULL), while a stream's buffer is allocated. */
static void *use_streams(void *unused)
{
	_IO_list_lock();
	has_list = true;
	while (!is_asleep(getpid()))
		usleep(1000);
	free(malloc(32 * PIN_MIB));
	_IO_list_unlock();
	return unused;
}

static bool fork_beside_streams(void)
{
	pthread_t thread;

	alarm(20);
	pthread_create(&thread, NULL, use_streams, NULL);
	while (!has_list)
		;
	if (!fork())
		_exit(0);
	return wait(NULL) > 0;
}

/* --- threads that end ----------------------------------------------------------------- */

static pthread_key_t keys[2]; /* one before jemalloc's own, and one behind it */
static char *_Atomic left;    /* by any thread */
static _Atomic unsigned n_late;

/* After the thread's cache has gone, and again: frees what another has left. */
static void late(void *round)
{
	size_t n = (size_t)round;
	char *p = malloc(200 << n), *was;

	memset(p, 0x5e, malloc_usable_size(p));
	was = atomic_exchange(&left, p);
	n_late += !was || is_filled(was, 0x5e, malloc_usable_size(was));
	free(was);
	free(malloc(100));
	if (n < 8)
		pthread_setspecific(keys[n % 2], (char *)round + 2);
}

static unsigned n_walked;

static int walk(void **frames, int n)
{
	(void)frames, (void)n;
	n_walked++;
	return -1;
}

static __attribute__((constructor(101))) void begin(void)
{
	pin_hooks.walk_stack = walk;
	pthread_key_create(&keys[0], late);
}

/* Half of the threads allocate nothing before their destructors run. */
static void *end_late(void *number)
{
	pthread_setspecific(keys[0], (void *)2);
	if ((size_t)number % 2) {
		free(malloc(50));
		pthread_setspecific(keys[1], (void *)3);
	}
	return NULL;
}

static void ending(void)
{
	pthread_key_create(&keys[1], late);
	for (int i = 0; i < 100; i++)
		in_threads(8, end_late);
	ok(n_late == 100 * (8 + 4) * 4,
	   "a thread allocates and frees in any round of its destructors: %u", n_late);
}

enum { BLOCKS = 200 };

/* Requests get what is in the thread's cache, the last one first. */
static void *only_free(void *given)
{
	char **block = given, *p[4];
	bool same = true;
	int i;

	for (i = 0; i < BLOCKS; i++)
		free(block[i]);
	for (i = 0; i < 4; i++)
		same &= (p[i] = malloc(48)) == block[BLOCKS - 1 - i];
	while (i)
		free(p[--i]);
	return same ? given : NULL;
}

static void frees_only(void)
{
	char *block[BLOCKS];
	pthread_t thread;
	void *p;

	for (int i = 0; i < BLOCKS; i++)
		block[i] = malloc(48);
	pthread_create(&thread, NULL, only_free, block);
	pthread_join(thread, &p);
	ok(p, "a thread that only frees has a cache of what it frees");
}

int main(int argc, char **argv)
{
	void *volatile first = malloc(1); /* the heap begins with it */

	free(first);
	if (argc > 1 && (!strcmp(argv[1], "first") || !strcmp(argv[1], "limited")))
		return (int)(pin_span_bytes() / PIN_MIB);
	if (argc > 1 && !strcmp(argv[1], "sparse"))
		return touches_few_pages();
	if (argc > 1)
		return aligned_at_end();
	ok(!n_walked, "nobody has the first growth step");
	first_steps();
	zeroes_at_end();
	ok(anew("sparse", "0") == 1,
	   "calloc touches no page that is zero, of a process without rights");
	steps();
	missing_part();
	lowest_first();
	ok(anew("aligned", "0") == 1,
	   "free memory at the end is found however many free extents do not fit");
	shared();
	ok(in_child(counts_whole_runs), "of a run that is mapped in part no page is counted");
	ok(in_child(fork_beside_streams), "fork() waits for a thread that flushes all streams");
	ok(in_child(fork_interrupted), "a signal handler that interrupts fork() can fork");
	/* Then the heap is larger than the memory: the kernel may refuse fork(). */
	borders();
	ending();
	frees_only();
	return done_testing();
}
