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
#include "regpool/state.h"
#include "test/beside.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define LENGTH	  (16 * PIN_PAGE)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)
#define WRITABLE  (PROT_READ | PROT_WRITE)

/* The linker puts these in place of the library's (--wrap). */
ssize_t __real_read(int fd, void *buffer, size_t size);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
bool __real_pin_os_is_mapped(const void *addr, size_t n_bytes);
void __real_pin_os_wake(_Atomic uint32_t *word);

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
	return true;
}

void __wrap_pin_listeners_invalidate(uintptr_t start, size_t length, const void *caller)
{
	tell(start, length);
}

/* Whether the cache inserts what it has registered, in its own time. */
static bool inserts_later;

bool __wrap_pin_listeners_insert_later(const void *caller)
{
	return inserts_later;
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

/* So many messages have been dealt with, and none is being. */
static void await_events(uint64_t n)
{
	while (pin_watched.events < n || pin_watch_heap_is_changing() ||
	       pin_watch_arrived[PIN_WATCH_FOREIGN] != pin_watch_settled[PIN_WATCH_FOREIGN])
		usleep(100);
}

/* The kernel's message of it has been dealt with. */
static void after(void (*how)(char *p), char *p)
{
	uint64_t before = pin_watched.events;

	begin();
	how(p);
	await_events(before + 1);
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

static bool is_always_forgotten(char *p)
{
	unsigned n = 0;

	while (n < 16 && is_forgotten(p))
		n++;
	return n == 16;
}

/* A kernel that permits something no more, or that has no message after all. */
static _Atomic bool no_reading, no_waiting, no_message;

static _Atomic bool look_ups_wait; /* when a message was read last */

static int refuse(int error)
{
	errno = error;
	return -1;
}

ssize_t __wrap_read(int fd, void *buffer, size_t size)
{
	if (size != sizeof(struct uffd_msg))
		return __real_read(fd, buffer, size);
	was_early |= !n_told;
	look_ups_wait = pin_watch_is_pending();
	if (atomic_exchange(&no_message, false))
		return refuse(EAGAIN);
	return no_reading ? refuse(EIO) : __real_read(fd, buffer, size);
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
	return no_waiting ? refuse(EIO) : __real_poll(fds, n, timeout);
}

static void foreign(void)
{
	char *p = map_pages(LENGTH), *other = map_pages(LENGTH);

	ok(is_forgotten(p), "a first registration is forgotten");
	begin();
	replace(p);
	ok(!n_told, "nobody needs to be told when it is replaced");
	ok(!is_forgotten(p), "a second one is watched");
	ok(!is_forgotten(p) && pin_watched.ranges == 2, "so are all later ones");
	ok(is_forgotten(other) && !is_forgotten(other), "others are, too");
	no_message = true;
	after(replace, p);
	ok(is_told(p, LENGTH) && is_told(other, LENGTH), "listeners are notified of all of it");
	ok(!was_early, "they are notified before the call returns");
	ok(!is_told((char *)pin_reserve.base, PIN_PAGE), "but not of the heap");
	ok(!is_forgotten(other), "what was not replaced is watched");
	ok(is_forgotten(p) && is_forgotten(p) && !is_forgotten(p),
	   "memory that is replaced each time is watched later");
	memset(p, 1, LENGTH);
	after(discard, p);
	ok(is_told(p, LENGTH) && !was_early && *p == 0,
	   "listeners are notified of discarded pages");
	ok(is_always_forgotten(p),
	   "the new ones are forgotten, as nobody tells when the old ones have gone");
	ok(!is_forgotten(other), "those only");
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
	tells_for_ms = getenv("TEST_ALL") && *getenv("TEST_ALL") ? 4000 : 100;
	after(replace, p);
	ok(is_told(p, LENGTH), "a call does not return before a slow listener has been told");
	tells_for_ms = 0;
}

#define RANGES 1000

static void many(void)
{
	char *p = map_pages(2 * RANGES * PIN_PAGE);
	uint64_t before = pin_watched.events;

	for (size_t i = 0; i < 2 * RANGES; i++)
		pin_mr_deregister(reg(pd, p + i / 2 * 2 * PIN_PAGE, PIN_PAGE, RIGHTS));
	begin();
	for (size_t i = 0; i < 20; i++)
		munmap(p + 2 * i * PIN_PAGE, PIN_PAGE);
	await_events(before + 20);
	ok(pin_watched.events == before + 20 && n_told == 40,
	   "of many ranges each call is told once: %u", n_told);
}

/* --- what cannot be watched whole ---------------------------------------------------- */

static int watch(char *p, size_t n_bytes)
{
	return pin_watch_pages(PIN_WATCH_FOREIGN, pin_range_of(p, n_bytes));
}

static char *_Atomic hole; /* filled while it is watched */

bool __wrap_pin_os_is_mapped(const void *addr, size_t n_bytes)
{
	char *p = atomic_exchange(&hole, NULL);

	if (p && mmap(p, PIN_PAGE, WRITABLE, ANONYMOUS | MAP_FIXED, -1, 0) != p)
		abort();
	return __real_pin_os_is_mapped(addr, n_bytes);
}

static bool is_refused(void)
{
	alarm(20);
	return watch(map_pages(LENGTH), LENGTH) == -ECHILD;
}

static void in_part(void)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	char *p = map_pages(LENGTH), *file;

	munmap(p + PIN_PAGE, PIN_PAGE);
	ok(watch(p, LENGTH) == -EFAULT && watch(p + PIN_PAGE, PIN_PAGE) == -EFAULT,
	   "what is not mapped, or in part, cannot be watched");
	hole = p + PIN_PAGE;
	n_told = 0;
	ok(!watch(p, LENGTH) && !madvise(p + PIN_PAGE, PIN_PAGE, MADV_DONTNEED) && n_told,
	   "what was mapped there meanwhile is watched");
	p = mmap(NULL, 2 * PIN_GRANULE, WRITABLE, ANONYMOUS, -1, 0);
	file = (char *)PIN_ALIGN_UP((uintptr_t)p, PIN_GRANULE) + LENGTH;
	if (mmap(file, LENGTH, WRITABLE, MAP_PRIVATE | MAP_FIXED, fd, 0) != file)
		abort();
	close(fd);
	ok(!watch(file - LENGTH, LENGTH) && watch(file, LENGTH) == -EINVAL,
	   "nor pages of a file, even where what is beside them is");
	ok(in_child(is_refused),
	   "a child is refused, and does not wait for its parent's thread");
}

/* They are not touched, so none need be free. */
static void huge(void)
{
	char *p = mmap(NULL, 2 * PIN_GRANULE, WRITABLE, ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE,
		       -1, 0);
	uint64_t before = pin_watched.events;

	if (p == MAP_FAILED || watch(p, LENGTH)) {
		ok(true, "huge pages cannot be watched here");
		return;
	}
	ok(!watch(p + 2 * LENGTH, LENGTH), "two parts of a huge page can be watched");
	begin();
	munmap(p, 2 * PIN_GRANULE);
	await_events(before + 1);
	ok(is_told(p, LENGTH) && !was_early, "listeners are notified when it goes");
}

static char variables[LENGTH] __attribute__((aligned(4096))); /* on no page of the file */

static void other_kinds(void)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	char *p = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	char local[3 * 4096];

	close(fd);
	ok(is_forgotten(p), "pages of a file are forgotten once");
	ok(!is_forgotten(p) && pin_watched.unwatchable == 1, "then they are as without us, %lu",
	   pin_watched.unwatchable);
	ok(is_forgotten(variables) && !is_forgotten(variables), "variables are watched");
	begin();
	pin_mr_deregister(reg(pd, local, sizeof local, RIGHTS));
	ok(!n_told && pin_watched.unwatchable == 1, "the main stack is left alone");
	pin_options.watch = PIN_WATCH_STRICT;
	ok(is_always_forgotten(p) && is_always_forgotten(map_pages(LENGTH)),
	   "if that is wanted, files are always forgotten, as is all other memory");
	pin_options.watch = PIN_WATCH_ON;
}

static bool has_keys(char *p)
{
	struct pin_mr_key keys;

	return !look_up(pd, p, 64, &keys);
}

static void heap(char *p)
{
	uint64_t before = pin_state_requests(PIN_REPLACED);

	ok(has_keys(p) && !is_forgotten(p),
	   "heap memory is registered, and need not be forgotten");
	meanwhile = p;
	after(discard, p);
	ok(!has_keys(p), "keys to discarded pages are withdrawn before the call returns");
	ok(is_told(p, LENGTH) && !was_early && look_ups_wait,
	   "listeners are notified before that, and look-ups wait until then");
	ok(is_forgotten(p) && is_forgotten(p) && !wrong_keys &&
		   pin_state_requests(PIN_REPLACED) == before + 2,
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

/* By the program itself. */
static void watch_already(char *p)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {.range = {(uintptr_t)p, PIN_PAGE},
					.mode = UFFDIO_REGISTER_MODE_MISSING};
	int fd = pin_uffd_open();

	if (ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &range))
		abort();
}

static void move_away(char *p)
{
	if (mremap(p, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, map_pages(LENGTH)) == p)
		abort();
}

static void not_watched(char *p)
{
	ok(!has_keys(p + 3 * PIECE) && !has_keys(p + 2 * PIECE) && has_keys(p + PIECE),
	   "of the heap only what cannot be watched is not served");
	ok(is_always_forgotten(p + 3 * PIECE), "but forgotten");
	after(move_away, p + PIECE);
	ok(!has_keys(p + PIECE) && has_keys(p + 4 * PIECE), "nor is what was moved away");
}

/* Memory of the program's own at the heap's addresses, and what begins below them. */
static void beside_heap(char *p)
{
	char *beyond = (char *)pin_reserve.base + pin_reserve.size / 2;

	replace(beyond);
	ok(is_always_forgotten(beyond), "what is mapped in the heap's addresses is forgotten");
	pin_mr_deregister(reg(pd, p - LENGTH, 5 * PIECE, RIGHTS));
	ok(has_keys(p + 4 * PIECE), "the heap is registered");
	after(discard, p + 4 * PIECE);
	ok(!has_keys(p + 4 * PIECE), "and watched after a registration that begins below it");
}

/* In a child, before there is a watch. */
static bool watches_what_is_registered(void)
{
	char *p = (char *)pin_span_get(0)->start;
	unsigned before;

	alarm(20);
	pin_options.huge = PIN_HUGE_TLB;
	pin_watch_start();
	pd = new_pd();
	discard(p);
	before = pin_watch_arrived[PIN_WATCH_HEAP];
	has_keys(p);
	discard(p);
	return !before && pin_watch_arrived[PIN_WATCH_HEAP] == 1 && !has_keys(p);
}

/* --- who inserts later ---------------------------------------------------------------- */

static _Atomic(char *)
	unmapped; /* mapped and registered while the call sleeps that unmaps it */

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

/* Open MPI's own cache. What it inserts after all messages was registered before them. */
static void inserted_later(void)
{
	char *p = map_pages(2 * LENGTH);
	uint64_t before;

	inserts_later = true;
	ok(!is_forgotten(p) && !is_forgotten(p + LENGTH),
	   "what is inserted later is watched at once");
	before = pin_watched.events;
	unmapped = p;
	if (munmap(p, 2 * LENGTH))
		abort();
	await_events(before + 1);
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

static char *above; /* a stack that the first thread of a process is on */

static bool is_above_forgotten(void)
{
	alarm(20);
	return is_forgotten(above);
}

static void *fork_and_look(void *is_right_there)
{
	*(bool *)is_right_there = in_child(is_above_forgotten);
	return NULL;
}

static void other_stack(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	bool is_right_there = false;

	above = map_pages(STACK + LENGTH) + STACK;
	pthread_attr_init(&attributes);
	if (pthread_attr_setstack(&attributes, above - STACK, STACK) ||
	    pthread_create(&thread, &attributes, fork_and_look, &is_right_there) ||
	    pthread_join(thread, NULL))
		abort();
	pthread_attr_destroy(&attributes);
	ok(is_right_there,
	   "what lies above a stack is not left alone, in a child of its thread");
}

/* --- a watch that ends ------------------------------------------------------------------ */

static void *replace_in_thread(void *p)
{
	replace(p);
	return NULL;
}

static _Atomic bool *no_more;

/* In a child, before there is a watch: it cannot begin again. */
static bool ends_well(void)
{
	char *p[2] = {map_pages(LENGTH), map_pages(LENGTH)};
	pthread_t threads[2];

	alarm(20);
	pd = new_pd();
	for (int i = 0; i < 2; i++)
		if (!is_forgotten(p[i]) || is_forgotten(p[i]))
			return false;
	begin();
	*no_more = true;
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, replace_in_thread, p[i]))
			return false;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	while (pin_watch_is_on())
		usleep(100);
	return !was_early && is_told(p[0], LENGTH) && is_told(p[1], LENGTH);
}

/* The heap is refused first, while the thread that waits for messages is a long time on its
 * way. */
static _Atomic bool is_refused_once;

int ioctl(int fd, unsigned long what, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, what);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (what == UFFDIO_REGISTER && atomic_exchange(&is_refused_once, false))
		return refuse(ENOMEM);
	return (int)syscall(SYS_ioctl, fd, what, argument);
}

void __wrap_pin_os_wake(_Atomic uint32_t *word)
{
	bool is_slow = is_refused_once;
	char name[16] = "";

	__real_pin_os_wake(word);
	pthread_getname_np(pthread_self(), name, sizeof name);
	if (is_slow && !strcmp(name, "pinalloc-watch"))
		usleep(200000);
}

/* Likewise. */
static bool begins_again(void)
{
	char *p = (char *)pin_span_get(0)->start;
	bool is_served;

	alarm(20);
	is_refused_once = true;
	pin_options.watch = PIN_WATCH_STRICT;
	pd = new_pd();
	is_served = pin_watch_start() || has_keys(p);
	pin_options.watch = PIN_WATCH_ON;
	if (is_served || !has_keys(p))
		return false;
	usleep(400000);
	for (int i = 0; i < 1000 && !pin_watch_start(); i++)
		;
	return has_keys(p) && pin_state.created == 2 && !madvise(p, PIN_PAGE, MADV_DONTNEED) &&
	       !has_keys(p);
}

/* Likewise. */
static bool is_distrusted(void)
{
	char *p = (char *)pin_span_get(0)->start;
	bool had;

	alarm(20);
	pin_options.watch = PIN_WATCH_STRICT;
	pd = new_pd();
	had = has_keys(p) && has_keys(p + PIECE);
	no_reading = true;
	discard(p);
	while (pin_watch_is_on())
		usleep(100);
	return had && !has_keys(p) && !has_keys(p + PIECE) && is_forgotten(p + PIECE);
}

static void lose(_Atomic bool *what, const char *name)
{
	no_more = what;
	ok(in_child(ends_well),
	   "if %s any more, listeners are notified, and no call sleeps for ever", name);
}

int main(void)
{
	struct pin_span *span = NULL;
	char *p;

	alarm(110);
	if (!lazy_pool())
		return 99;
	pin_hooks.notify_caches = tell;
	pthread_atfork(NULL, NULL, pin_watch_reset);
	p = grow(&span, 5 * PIECE);
	memset(p, 1, 5 * PIECE);
	map_file(p + 3 * PIECE);
	if (close(pin_uffd_open())) {
		ok(true, "userfaultfd is not available here");
		return done_testing();
	}
	lose(&no_reading, "messages cannot be read");
	lose(&no_waiting, "nobody can wait for messages");
	ok(in_child(begins_again), "a watch that could not begin does, and messages are read");
	ok(in_child(is_distrusted), "and with strict the heap has no keys any more");
	ok(in_child(watches_what_is_registered),
	   "huge pages are watched as they are registered");
	watch_already(p + 2 * PIECE);
	pin_watch_start();
	pd = new_pd();
	foreign();
	in_flight();
	slow();
	many();
	other_kinds();
	in_part();
	huge();
	heap(p);
	not_watched(p);
	beside_heap(p);
	inserted_later();
	other_stack();
	ok(pin_domain_dealloc(pd) == 0 && !fake_verbs.live, "nothing is left");
	return done_testing();
}
