/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The watch from registration to listener, with the real kernel and the stand-in for
 * libibverbs: a call that replaces pages returns after listeners were notified and keys
 * withdrawn, not before; and what is not watched is forgotten. If the kernel forbids
 * userfaultfd there is nothing to test.
 */
#include <config.h>

#include "regpool/watch.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "regpool/keys.h"
#include "regpool/listeners.h"
#include "regpool/pool.h"
#include "regpool/uffd.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define LENGTH	  (16 * PIN_PAGE)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)
#define WRITABLE  (PROT_READ | PROT_WRITE)

/* The linker puts these in place of the library's (--wrap). */
bool __wrap_pin_uffd_read(unsigned n, struct uffd_msg *message);
bool __real_pin_uffd_read(unsigned n, struct uffd_msg *message);
bool __wrap_pin_listeners_find(void);
void __wrap_pin_listeners_forget(uintptr_t start, size_t length);
bool __wrap_pin_listeners_forget_first(const void *caller);

static struct ibv_pd *pd;

/* --- who is told -------------------------------------------------------------------- */

#define MOST 256
static struct {
	uintptr_t start;
	size_t length;
} told[MOST];
static _Atomic unsigned n_told, tells_for_ms;
static _Atomic bool was_early; /* a call was let return before anybody was told */
static _Atomic(char *)
	meanwhile; /* registered when listeners were told, before the call returns */

static bool is_forgotten(char *p);
static void map_again(void);

static void tell(uintptr_t start, size_t length)
{
	char *p = atomic_exchange(&meanwhile, NULL);

	if (p)
		ok(is_forgotten(p), "what is registered before the pages go is forgotten");
	map_again();
	usleep(tells_for_ms * 1000);
	told[n_told % MOST].start = start;
	told[n_told % MOST].length = length;
	n_told++;
}

/* There is one from the start, to be told by the thread that registers. */
bool __wrap_pin_listeners_find(void)
{
	pin_watch_subscribe(tell);
	return true;
}

void __wrap_pin_listeners_forget(uintptr_t start, size_t length)
{
	tell(start, length);
}

/* Whether the cache inserts what it has registered, in its own time. */
static bool inserts_later;

bool __wrap_pin_listeners_forget_first(const void *caller)
{
	(void)caller;
	return !inserts_later;
}

static bool is_told(const char *start, size_t length)
{
	for (unsigned i = 0; i < n_told && i < MOST; i++)
		if (told[i].start <= (uintptr_t)start &&
		    told[i].start + told[i].length >= (uintptr_t)start + length)
			return true;
	return false;
}

static void begin(void)
{
	n_told = 0;
	was_early = false;
}

/* --- what is replaced --------------------------------------------------------------- */

static char *map_pages(size_t n_bytes)
{
	char *p = mmap(NULL, n_bytes + 2 * PIN_PAGE, PROT_NONE, ANONYMOUS, -1, 0);

	if (mprotect(p + PIN_PAGE, n_bytes, WRITABLE))
		abort();
	memset(p + PIN_PAGE, 1, n_bytes);
	return p + PIN_PAGE;
}

static void replace(char *p)
{
	if (mmap(p, LENGTH, WRITABLE, ANONYMOUS | MAP_FIXED, -1, 0) != p)
		abort();
}

static void discard(char *p)
{
	if (madvise(p, LENGTH, MADV_DONTNEED))
		abort();
}

static void *discard_in_thread(void *p)
{
	discard(p);
	return NULL;
}

static void discard_elsewhere(char *p)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, discard_in_thread, p) || pthread_join(thread, NULL))
		abort();
}

static bool is_watched(const char *p)
{
	return pin_ranges_has(pin_pages_of(p, LENGTH));
}

/* A message that the kernel sends of it has been dealt with. */
static void after(void (*how)(char *p), char *p)
{
	uint64_t before = pin_watched.events;

	begin();
	how(p);
	while (pin_watched.events == before)
		usleep(100);
}

static struct ibv_mr *registered;
static unsigned wrong_keys;

/* Whether a registration is forgotten at once. */
static bool is_forgotten(char *p)
{
	begin();
	registered = reg(pd, p, LENGTH, RIGHTS);
	wrong_keys += !reaches(registered);
	pin_mr_deregister(registered);
	return is_told(p, LENGTH);
}

bool __wrap_pin_uffd_read(unsigned n, struct uffd_msg *message)
{
	was_early = was_early || !n_told;
	return __real_pin_uffd_read(n, message);
}

static void foreign(void)
{
	char *p = map_pages(LENGTH);

	ok(is_forgotten(p) && !is_watched(p), "a first registration is forgotten");
	begin();
	replace(p);
	ok(!n_told, "nobody needs to be told when it is replaced");
	ok(!is_forgotten(p) && is_watched(p), "a second one is watched");
	ok(!is_forgotten(p) && pin_watched.ranges == 2, "so are all later ones");
	after(replace, p);
	ok(is_told(p, LENGTH), "listeners are notified when it is replaced");
	ok(!was_early, "they are notified before the call returns");
	ok(!is_watched(p), "the new pages are not watched");
	ok(is_forgotten(p) && is_forgotten(p) && !is_forgotten(p) && is_watched(p),
	   "memory that is replaced each time is watched later");
	memset(p, 1, LENGTH);
	after(discard, p);
	ok(is_told(p, LENGTH) && !was_early && *p == 0,
	   "listeners are notified of discarded pages");
	ok(!is_forgotten(p), "who discarded them may register the new ones");
	after(discard_elsewhere, p);
	ok(is_forgotten(p) && is_forgotten(p) && is_forgotten(p),
	   "others' are forgotten, as nobody tells when the old ones have gone");
}

static void in_flight(void)
{
	char *p = map_pages(LENGTH);

	ok(is_forgotten(p) && !is_forgotten(p), "memory is watched");
	meanwhile = p;
	after(discard, p);
	ok(!meanwhile, "it was registered while it was discarded");
}

/* For longer than anybody would wait by the clock. */
static void slow(void)
{
	char *p = map_pages(LENGTH);

	ok(is_forgotten(p) && !is_forgotten(p), "memory is watched");
	tells_for_ms = 4000;
	after(replace, p);
	ok(is_told(p, LENGTH), "a call does not return before a slow listener has been told");
	tells_for_ms = 0;
}

/* Of so many ranges some are not remembered from a first registration to the second. */
static void watch(char *p, size_t length)
{
	do {
		pin_mr_deregister(reg(pd, p, length, RIGHTS));
	} while (!pin_ranges_has(pin_pages_of(p, length)));
}

/* Of each descriptor more than are listed at once. */
#define RANGES (66 * PIN_UFFDS)

static void many(void)
{
	char *p = map_pages(2 * RANGES * PIN_PAGE);
	uint64_t before = pin_watched.events;

	for (size_t i = 0; i < RANGES; i++)
		watch(p + 2 * i * PIN_PAGE, PIN_PAGE);
	for (size_t i = 0; i < 20; i++)
		munmap(p + 2 * i * PIN_PAGE, PIN_PAGE);
	while (pin_watched.events < before + 20)
		usleep(100);
	ok(pin_watched.events == before + 20, "each call is counted once");
	begin();
	munmap(p + 2 * (RANGES - 1) * PIN_PAGE, PIN_PAGE);
	ok(is_told(p + 2 * (RANGES - 1) * PIN_PAGE, PIN_PAGE) && n_told < MOST,
	   "of many ranges those of one descriptor are notified: %u", n_told);
}

static char variables[3 * 4096];

static void other_kinds(void)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	char *p = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	char local[3 * 4096];

	close(fd);
	ok(is_forgotten(p), "pages of a file are forgotten once");
	ok(!is_forgotten(p) && pin_watched.unwatchable == 1, "then they are as without us, %lu",
	   pin_watched.unwatchable);
	begin();
	pin_mr_deregister(reg(pd, variables, sizeof variables, RIGHTS));
	pin_mr_deregister(reg(pd, local, sizeof local, RIGHTS));
	ok(!n_told && pin_watched.unwatchable == 1, "what never goes is left alone");
	pin_options.watch = PIN_WATCH_STRICT;
	ok(is_forgotten(p) && is_forgotten(p), "if that is wanted, files are always forgotten");
	p = map_pages(LENGTH);
	ok(is_forgotten(p) && is_forgotten(p) && is_forgotten(p), "as is all other memory");
	pin_options.watch = PIN_WATCH_ON;
}

static bool has_keys(char *p)
{
	struct pin_mr_key keys;

	return !look_up(pd, p, 64, &keys);
}

static void heap(char *p)
{
	uint64_t before = pin_pool_requests(PIN_REPLACED);

	ok(has_keys(p) && !is_forgotten(p),
	   "heap memory is registered, and need not be forgotten");
	meanwhile = p;
	after(discard, p);
	ok(!has_keys(p), "keys to discarded pages are withdrawn before the call returns");
	ok(is_told(p, LENGTH) && !was_early, "listeners are notified before that");
	ok(is_forgotten(p) && is_forgotten(p) && !wrong_keys &&
		   pin_pool_requests(PIN_REPLACED) == before + 2,
	   "requests for them go to libibverbs, and are forgotten");
	ok(has_keys(p + PIECE), "requests for other pages are served");
}

/* Pages that cannot be watched: the rest of the heap is, as it was found above. */
static void map_file(char *p)
{
	int fd = open("/proc/self/exe", O_RDONLY);

	if (mmap(p, PIN_PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) != p)
		abort();
	close(fd);
}

static void not_watched(char *p)
{
	ok(!has_keys(p + 3 * PIECE) && has_keys(p + PIECE),
	   "of the heap only what cannot be watched is not served");
	ok(is_forgotten(p + 3 * PIECE) && is_forgotten(p + 3 * PIECE), "but forgotten");
}

/* --- who inserts later ---------------------------------------------------------------- */

static _Atomic(char *)
	unmapped; /* mapped and registered while the call sleeps that unmaps it */

/* Two ranges of as many descriptors: of the second there is no message yet. */
static void map_again(void)
{
	char *p = atomic_exchange(&unmapped, NULL);

	if (!p)
		return;
	if (mmap(p, 2 * LENGTH, WRITABLE, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != p)
		abort();
	for (int i = 0; i < 2; i++)
		pin_mr_deregister(reg(pd, p + i * LENGTH, LENGTH, RIGHTS));
}

static void unmap(char *p)
{
	unmapped = p;
	if (munmap(p, 2 * LENGTH))
		abort();
}

/* Open MPI's own cache. What it inserts after all messages was registered before them. */
static void inserted_later(void)
{
	char *p = map_pages(2 * LENGTH);
	uint64_t before;

	inserts_later = true;
	ok(!is_forgotten(p) && is_watched(p), "what is inserted later is watched at once");
	ok(!is_forgotten(p + LENGTH) && is_watched(p + LENGTH), "each range by itself");
	before = pin_watched.events;
	unmap(p);
	while (pin_watched.events < before + 2)
		usleep(100);
	for (int i = 0; i < 2; i++) {
		after(replace, p + i * LENGTH);
		ok(is_told(p + i * LENGTH, LENGTH) && !was_early,
		   "what was mapped before a call had returned is told when it goes, %d",
		   i + 1);
	}
	inserts_later = false;
}

/* --- the first thread elsewhere ------------------------------------------------------- */

#define STACK PIN_MIB

static ucontext_t first, second;
static char *above; /* the stack that the first thread is on */
static bool is_right;

static void look_above(void)
{
	is_right = is_forgotten(above) && !is_forgotten(above) && is_watched(above);
}

static void *fork_and_look(void *status)
{
	pid_t child = fork();

	if (!child) {
		alarm(20);
		_exit(!is_forgotten(above));
	}
	waitpid(child, status, 0);
	return NULL;
}

static void other_stacks(void)
{
	char *stack = map_pages(STACK + LENGTH);
	pthread_attr_t attributes;
	pthread_t thread;
	int status = -1;

	above = stack + STACK;
	getcontext(&second);
	second.uc_stack.ss_sp = stack;
	second.uc_stack.ss_size = STACK;
	second.uc_link = &first;
	makecontext(&second, look_above, 0);
	swapcontext(&first, &second);
	ok(is_right, "what lies above a stack of the program's own is watched");
	above = map_pages(STACK + LENGTH) + STACK;
	pthread_attr_init(&attributes);
	if (pthread_attr_setstack(&attributes, above - STACK, STACK) ||
	    pthread_create(&thread, &attributes, fork_and_look, &status) ||
	    pthread_join(thread, NULL))
		abort();
	pthread_attr_destroy(&attributes);
	ok(!status, "so is it in a child of another thread, above whose stack it lies");
}

/* A child has none of the threads. */
static void forked(void)
{
	char *p = map_pages(LENGTH);
	int status = -1;
	pid_t child;

	ok(is_forgotten(p) && !is_forgotten(p), "memory is watched");
	child = fork();
	if (!child) {
		alarm(20);
		replace(p);
		_exit(pin_watch_is_on() || is_watched(p) || pin_watched.ranges);
	}
	waitpid(child, &status, 0);
	ok(!status, "a forked child watches nothing, and does not wait");
	ok(is_watched(p), "its parent still watches");
}

int main(void)
{
	struct pin_span *span = NULL;
	char *p;

	alarm(110);
	if (!lazy_pool())
		return 99;
	p = grow(&span, 4 * PIECE);
	memset(p, 1, 4 * PIECE);
	map_file(p + 3 * PIECE);
	if (!pin_watch_start(NULL)) {
		ok(true, "userfaultfd is not available here");
		return done_testing();
	}
	pd = new_pd();
	foreign();
	in_flight();
	slow();
	many();
	other_kinds();
	heap(p);
	not_watched(p);
	inserted_later();
	other_stacks();
	forked();
	ok(pin_domain_dealloc(pd) == 0 && !fake_verbs.live, "nothing is left");
	return done_testing();
}
