/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The userfaultfd thread with the real kernel: what is watched, which calls sleep and until
 * when, the contents of messages, and many threads at once. If the kernel forbids userfaultfd
 * there is nothing to test.
 */
#include <config.h> /* for mremap() */

#include "regpool/uffd.h"
#include "allocator/os.h"
#include "test/asleep.h"
#include "test/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LENGTH	  (16 * PIN_PAGE)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)
#define WRITABLE  (PROT_READ | PROT_WRITE)

/* --- what is heard --------------------------------------------------------------- */

static struct {
	_Atomic uint32_t n_waiting; /* messages that wait, or waited */
	_Atomic uint32_t n_taken;
	_Atomic int what;
	_Atomic uintptr_t from, to;
} heard[PIN_UFFDS];
static _Atomic uint32_t n_woken;

static void woke(unsigned n)
{
	atomic_fetch_add(&heard[n].n_waiting, 1);
	atomic_fetch_add(&n_woken, 1);
	pin_os_wake(&n_woken);
}

static _Atomic unsigned n_looks;

static void look(void)
{
	atomic_fetch_add(&n_looks, 1);
}

static bool take(unsigned n)
{
	struct uffd_msg message;

	if (!pin_uffd_read(n, &message))
		return false;
	atomic_store(&heard[n].from, message.arg.remove.start);
	atomic_store(&heard[n].to, message.arg.remove.end);
	atomic_store(&heard[n].what, message.event);
	atomic_fetch_add(&heard[n].n_taken, 1);
	return true;
}

static unsigned n_descriptors; /* before all */

static _Atomic int lost_by;

static void lost(int error)
{
	atomic_store(&lost_by, error);
}

static const struct pin_uffd_callbacks user = {woke, look, lost};

/* --- a kernel that permits something no more ------------------------------------- */

static _Atomic bool no_reading, no_waiting, no_arming;
ssize_t __real_read(int fd, void *buffer, size_t size);
ssize_t __wrap_read(int fd, void *buffer, size_t size);
int __real_epoll_wait(int fd, struct epoll_event *events, int n, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int n, int timeout);
int __real_epoll_ctl(int fd, int how, int its, struct epoll_event *event);
int __wrap_epoll_ctl(int fd, int how, int its, struct epoll_event *event);

static int refuse(void)
{
	errno = EIO;
	return -1;
}

ssize_t __wrap_read(int fd, void *buffer, size_t size)
{
	return no_reading ? refuse() : __real_read(fd, buffer, size);
}

int __wrap_epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
	return no_waiting ? refuse() : __real_epoll_wait(fd, events, n, timeout);
}

int __wrap_epoll_ctl(int fd, int how, int its, struct epoll_event *event)
{
	return no_arming ? refuse() : __real_epoll_ctl(fd, how, its, event);
}

/* --- who replaces ------------------------------------------------------------------ */

static char *map_pages(void)
{
	char *p = mmap(NULL, LENGTH + 2 * PIN_PAGE, PROT_NONE, ANONYMOUS, -1, 0);

	if (mprotect(p + PIN_PAGE, LENGTH, WRITABLE))
		abort();
	memset(p + PIN_PAGE, 1, LENGTH);
	return p + PIN_PAGE;
}

struct replacement {
	char *at;
	pthread_t thread;
	_Atomic pid_t tid;
	_Atomic bool over;
};

static void *replace(void *arg)
{
	struct replacement *it = arg;

	atomic_store(&it->tid, gettid());
	if (mmap(it->at, LENGTH, WRITABLE, ANONYMOUS | MAP_FIXED, -1, 0) != it->at)
		abort();
	atomic_store(&it->over, true);
	return NULL;
}

static void start(struct replacement *it, char *at)
{
	*it = (struct replacement){.at = at};
	if (pthread_create(&it->thread, NULL, replace, it))
		abort();
}

/* Until its call sleeps, or has returned. */
static void await_asleep(struct replacement *it)
{
	while (!it->over && !(it->tid && is_asleep(it->tid)))
		usleep(100);
}

/* Awaits a message of a descriptor that has had so many. */
static void await(unsigned n, uint32_t before)
{
	while (atomic_load(&heard[n].n_waiting) == before)
		usleep(100);
}

static bool was(unsigned n, int what, char *from)
{
	return heard[n].what == what && heard[n].from == (uintptr_t)from &&
	       heard[n].to == (uintptr_t)from + LENGTH;
}

/* --- cases -------------------------------------------------------------------------- */

static void one(void)
{
	struct replacement it;
	char *p = map_pages();

	ok(!pin_uffd_watch(1, (uintptr_t)p, LENGTH), "pages are watched");
	start(&it, p);
	await(1, 0);
	ok(!take(2), "there is nothing to read of another descriptor");
	await_asleep(&it);
	while (!n_looks)
		usleep(1000);
	ok(!it.over, "a call that replaces them sleeps, however long that takes");
	ok(take(1) && was(1, UFFD_EVENT_UNMAP, p),
	   "reading its message wakes it and says what it did");
	pthread_join(it.thread, NULL);
	ok(!take(1), "there is one message");
	start(&it, p);
	pthread_join(it.thread, NULL);
	ok(heard[1].n_taken == 1, "new pages there are not watched");
	ok(!pin_uffd_watch(1, (uintptr_t)p, LENGTH), "they can be watched");
}

/* Two of one descriptor, and one of another in between. */
static void in_turn(void)
{
	struct replacement its[3];
	char *p[3];

	for (int i = 0; i < 3; i++) {
		p[i] = map_pages();
		pin_uffd_watch(i == 1 ? 4 : 3, (uintptr_t)p[i], LENGTH);
	}
	start(&its[0], p[0]);
	await(3, 0);
	start(&its[1], p[1]);
	await(4, 0);
	start(&its[2], p[2]);
	await_asleep(&its[2]);
	take(4);
	ok(was(4, UFFD_EVENT_UNMAP, p[1]) && !heard[3].n_taken, "descriptors are independent");
	take(3);
	ok(was(3, UFFD_EVENT_UNMAP, p[0]), "the oldest message of a descriptor is read first");
	await(3, 1);
	take(3);
	ok(was(3, UFFD_EVENT_UNMAP, p[2]), "then the next");
	for (int i = 0; i < 3; i++)
		pthread_join(its[i].thread, NULL);
}

static void refused(void)
{
	char *p = map_pages();

	ok(!pin_uffd_watch(5, (uintptr_t)p, LENGTH) &&
		   pin_uffd_watch(6, (uintptr_t)p, LENGTH) == -EBUSY,
	   "pages watched by one descriptor cannot be watched by another");
	p = map_pages();
	munmap(p - PIN_PAGE, LENGTH + 2 * PIN_PAGE);
	ok(pin_uffd_watch(5, (uintptr_t)p, LENGTH) == -EFAULT,
	   "unmapped pages cannot be watched");
	p = map_pages();
	munmap(p + PIN_PAGE, PIN_PAGE);
	ok(pin_uffd_watch(5, (uintptr_t)p, LENGTH) == -EFAULT,
	   "nor can a range that is partly unmapped");
}

/* They are not touched, so none need be free. */
static void huge(void)
{
	char *p = mmap(NULL, 2 * PIN_GRANULE, WRITABLE, ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE,
		       -1, 0);

	if (p == MAP_FAILED || pin_uffd_watch(24, (uintptr_t)p, LENGTH)) {
		ok(true, "huge pages cannot be watched here");
		return;
	}
	p += 2 * LENGTH;
	ok(pin_uffd_watch(25, (uintptr_t)p, LENGTH) == -EBUSY,
	   "a huge page that one descriptor watches for a part of it cannot be another's");
	ok(!pin_uffd_watch(24, (uintptr_t)p, LENGTH),
	   "the same descriptor can watch another part of it");
}

/* As far around it as a huge page might reach. */
static void beside_watched(void)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	char *p = mmap(NULL, 2 * PIN_GRANULE, WRITABLE, ANONYMOUS, -1, 0), *file;

	file = (char *)PIN_ALIGN_UP((uintptr_t)p, PIN_GRANULE) + LENGTH;
	if (mmap(file, LENGTH, WRITABLE, MAP_PRIVATE | MAP_FIXED, fd, 0) != file)
		abort();
	close(fd);
	pin_uffd_watch(26, (uintptr_t)file - LENGTH, LENGTH);
	ok(pin_uffd_watch(27, (uintptr_t)file, LENGTH) == -EINVAL,
	   "pages of a file cannot be watched, whoever watches what is beside them");
}

static void *discard(void *arg)
{
	if (madvise(arg, LENGTH, MADV_DONTNEED))
		abort();
	return NULL;
}

/* Who discards has been told of before the pages go. */
static void discarding(void)
{
	pthread_t thread;
	char *p = map_pages();

	pin_uffd_watch(20, (uintptr_t)p, LENGTH);
	if (pthread_create(&thread, NULL, discard, p))
		abort();
	await(20, 0);
	ok(*p == 1, "a call about to discard pages sleeps");
	ok(take(20) && was(20, UFFD_EVENT_REMOVE, p), "its message can be read");
	pthread_join(thread, NULL);
	ok(*p == 0, "then the pages are discarded");
}

static void *move(void *arg)
{
	char **places = arg;

	if (mremap(places[0], LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, places[1]) !=
	    places[1])
		abort();
	return NULL;
}

static void moved(void)
{
	char *places[2] = {map_pages(), map_pages()};
	pthread_t thread;

	pin_uffd_watch(22, (uintptr_t)places[0], LENGTH);
	if (pthread_create(&thread, NULL, move, places))
		abort();
	await(22, 0);
	take(22);
	ok(heard[22].what == UFFD_EVENT_REMAP, "moving watched pages makes a message");
	/* That they are not mapped any more where they were is another one. */
	await(22, 1);
	take(22);
	pthread_join(thread, NULL);
	ok(pin_uffd_watch(23, (uintptr_t)places[1], LENGTH) == -EBUSY,
	   "moved pages stay watched");
	ok(!pin_uffd_watch(22, (uintptr_t)places[1], LENGTH),
	   "by the same descriptor, which can watch them again");
}

static unsigned count_descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void forked(void)
{
	char *p = map_pages();
	int status = -1;
	pid_t child;

	pin_uffd_watch(7, (uintptr_t)p, LENGTH);
	ok(count_descriptors() == n_descriptors, "the process has no additional descriptors");
	child = fork();
	if (!child) {
		alarm(10);
		pin_uffd_reset();
		munmap(p, LENGTH);
		_exit(pin_uffd_watch(7, (uintptr_t)p - PIN_PAGE, PIN_PAGE) != -ECHILD);
	}
	waitpid(child, &status, 0);
	ok(!status, "a forked child does not wait, and watches nothing");
	ok(!heard[7].n_waiting, "its calls make no message");
}

/* --- all at once ---------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 500 };
static _Atomic bool enough;

/* Takes all there is of descriptors that have had no message before, as it comes. */
static void *take_all(void *arg)
{
	uint32_t done[PIN_UFFDS] = {0};

	(void)arg;
	while (!atomic_load(&enough)) {
		uint32_t seen = atomic_load(&n_woken);

		for (unsigned n = 8; n < 8 + THREADS; n++)
			if (atomic_load(&heard[n].n_waiting) != done[n])
				done[n] += take(n);
		if (seen == atomic_load(&n_woken))
			pin_os_wait_ms(&n_woken, seen, 10);
	}
	return NULL;
}

/* By one descriptor for two threads. */
static void *churn(void *arg)
{
	unsigned n = 8 + (unsigned)(uintptr_t)arg / 2, wrong = 0;
	char *p = map_pages();

	for (int i = 0; i < ROUNDS; i++) {
		wrong += pin_uffd_watch(n, (uintptr_t)p, LENGTH) != 0;
		if (i % 2 ? madvise(p, LENGTH, MADV_DONTNEED)
			  : mmap(p, LENGTH, WRITABLE, ANONYMOUS | MAP_FIXED, -1, 0) != p)
			abort();
	}
	return (void *)(uintptr_t)wrong;
}

static void at_once(void)
{
	pthread_t threads[THREADS], taker;
	uintptr_t wrong = 0;
	uint64_t began = pin_os_now_ns();
	void *result;

	pthread_create(&taker, NULL, take_all, NULL);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, churn, (void *)i);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &result);
		wrong += (uintptr_t)result;
	}
	began = pin_os_now_ns() - began;
	atomic_store(&enough, true);
	pthread_join(taker, NULL);
	ok(!wrong, "threads watch and replace concurrently: %u us for each round",
	   (unsigned)(began / 1000 / ROUNDS));
	ok(began < 60000000000ull, "no thread waits long");
}

/* The last case: afterwards there is another thread, as in a child. */
static void losing(_Atomic bool *no_more, const char *what)
{
	uint32_t before = heard[30].n_waiting, lost_before = heard[PIN_UFFD_HEAP].n_waiting;
	struct replacement its[2];

	lost_by = 0;
	for (int i = 0; i < 2; i++) {
		char *p = map_pages();

		pin_uffd_watch(30, (uintptr_t)p, LENGTH);
		start(&its[i], p);
	}
	await(30, before);
	atomic_store(no_more, true);
	take(30);
	await(PIN_UFFD_HEAP, lost_before);
	take(PIN_UFFD_HEAP);
	ok(lost_by == EIO, "if %s any more, the failure is reported", what);
	for (int i = 0; i < 2; i++)
		pthread_join(its[i].thread, NULL);
	ok(!take(30), "calls that sleep are woken then");
	atomic_store(no_more, false);
	pin_uffd_reset();
	ok(!pin_uffd_start(&user), "a new thread can be started");
}

int main(void)
{
	int error;

	alarm(110);
	n_descriptors = count_descriptors();
	error = pin_uffd_start(&user);
	if (error) {
		ok(error == EPERM || error == ENOSYS || error == EINVAL,
		   "userfaultfd is not available here: %s", strerror(error));
		return done_testing();
	}
	one();
	in_turn();
	refused();
	huge();
	beside_watched();
	discarding();
	moved();
	forked();
	at_once();
	losing(&no_reading, "messages cannot be read");
	losing(&no_waiting, "the thread cannot wait for messages");
	losing(&no_arming, "it cannot ask for the next message");
	return done_testing();
}
