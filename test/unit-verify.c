/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What verification counts: pages that move while they are registered, and nothing
 * else. Most of it against a kernel that moves a page whenever nobody pins it, because
 * the real one hides its frames from ordinary users.
 */
#include <config.h>

#include "allocator/os.h"
#include "regpool/pool.h"
#include "regpool/verify.h"
#include "test/regions.h"
#include "test/tap.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES	(REGION / PIN_PAGE)
#define REGIONS 8

/* The linker puts these in place of the library's (--wrap), and gives the real one. */
int __wrap_pin_os_frames(uintptr_t addr, size_t n_pages, uint64_t *frames);
int __real_pin_os_frames(uintptr_t addr, size_t n_pages, uint64_t *frames);
void __wrap_pin_watch_start(void);
size_t __wrap_pin_os_memlock_limit(void);

static struct {
	pthread_mutex_t lock;
	unsigned pins[REGIONS];	  /* registrations of each region */
	uint64_t round[REGIONS];  /* in which frames its pages are while it is pinned */
	uint64_t rounds;	  /* ever */
	uint64_t offset[PAGES];	  /* added to the frames of region 0 */
	unsigned absent;	  /* reads for which its page 7 is not there */
	unsigned reads;		  /* of frames, ever */
	unsigned withdraw_before; /* so many more reads region 0 is withdrawn */
	int error;		  /* of reading */
	bool real;		  /* the machine's own kernel is asked */
} kernel = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct pin_ibverbs pinning;
static const struct pin_ibverbs *fake;

/* Nobody tells what a program replaces: the machine may or may not have userfaultfd. */
void __wrap_pin_watch_start(void)
{
}

/* An ordinary user's is too low for two regions. */
size_t __wrap_pin_os_memlock_limit(void)
{
	return SIZE_MAX;
}

static size_t region_of(uintptr_t addr)
{
	return (addr - pin_reserve.base) / REGION;
}

static uint64_t frame(size_t number, size_t page)
{
	uint64_t round = kernel.pins[number] ? kernel.round[number] : ++kernel.rounds;

	if (!number && page == 7 && kernel.absent) {
		kernel.absent--;
		return 0;
	}
	return (round << 20) + page + 1 + (number ? 0 : kernel.offset[page]);
}

int __wrap_pin_os_frames(uintptr_t addr, size_t n_pages, uint64_t *frames)
{
	size_t number = region_of(addr), first = (addr - pin_reserve.base) % REGION / PIN_PAGE;

	if (kernel.real)
		return __real_pin_os_frames(addr, n_pages, frames);
	pthread_mutex_lock(&kernel.lock);
	kernel.reads++;
	if (kernel.withdraw_before && !--kernel.withdraw_before)
		pin_region_withdraw(pin_region_get(0)->start, 1);
	for (size_t i = 0; i < n_pages; i++)
		frames[i] = number < REGIONS ? frame(number, first + i) : 1;
	pthread_mutex_unlock(&kernel.lock);
	return kernel.error;
}

static void pin(const struct ibv_mr *mr, int by)
{
	size_t number = region_of((uintptr_t)mr->addr);

	if (number >= REGIONS)
		return;
	pthread_mutex_lock(&kernel.lock);
	if (!kernel.pins[number])
		kernel.round[number] = ++kernel.rounds;
	kernel.pins[number] += (unsigned)by;
	pthread_mutex_unlock(&kernel.lock);
}

static struct ibv_mr *reg_and_pin(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				  unsigned access)
{
	struct ibv_mr *mr = fake->reg_mr_iova2(pd, addr, length, iova, access);

	if (mr)
		pin(mr, 1);
	return mr;
}

static int dereg_and_unpin(struct ibv_mr *mr)
{
	pin(mr, -1);
	return fake->dereg_mr(mr);
}

static void install(void)
{
	fake = pin_ibverbs();
	pinning = *fake;
	pinning.reg_mr_iova2 = reg_and_pin;
	pinning.dereg_mr = dereg_and_unpin;
	pin_ibverbs_replace(&pinning);
}

/* What one pass adds to the figures; -1 pages moved if it fails. */
struct pass {
	uint64_t checked;
	long moved;
};

static struct pass pass(void)
{
	uint64_t checked = pin_verified.checked, before = pin_verified.moved;
	size_t moved = SIZE_MAX;

	if (pin_verify(&moved) || moved != pin_verified.moved)
		return (struct pass){0, -1};
	return (struct pass){pin_verified.checked - checked, (long)(moved - before)};
}

static bool passes(uint64_t checked, long moved)
{
	struct pass got = pass();
	bool right = got.checked == checked && got.moved == moved;

	if (!right)
		printf("# checked %lu, moved %ld\n", got.checked, got.moved);
	return right;
}

static void switched_on(char *heap)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS);

	ok(mr && !kernel.reads, "off, nothing is read when a region is registered");
	kernel.error = -EPERM;
	ok(pin_verify(NULL) == -EPERM && !pin_verify_on, "a kernel that hides frames is told");
	kernel.error = 0;
	ok(passes(0, 0), "the first pass has nothing to compare with");
	ok(passes(PAGES, 0), "the next one compares what was registered before");
	ok(!pin_verify(NULL), "without an answer, too");
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
	ok(passes(0, 0), "what is not registered is not compared");
}

static void counted(char *heap)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS);

	ok(passes(PAGES, 0), "what is registered later is known from then on");
	kernel.offset[3] = kernel.offset[PAGES - 1] = 5000;
	ok(passes(PAGES, 2), "two pages that move are counted");
	ok(passes(PAGES, 0), "once");
	kernel.offset[3] = 0;
	ok(passes(PAGES, 1), "and each time they move");
	kernel.absent = 3;
	ok(passes(PAGES, 0) && !kernel.absent, "a page the kernel puts back has not moved");
	kernel.absent = 1000;
	ok(passes(PAGES, 1), "one that is gone has");
	kernel.absent = 0;
	ok(passes(PAGES - 1, 0) && passes(PAGES, 0), "and is known again once it is back");
	kernel.offset[PAGES - 1] = 0;
	pin_mr_deregister(mr);
	kernel.error = -EIO;
	ok(pin_verify(NULL) == -EIO, "what cannot be read is told");
	kernel.error = 0;
	pin_domain_dealloc(pd);
	ok(pin_verified.moved == 5, "a page is compared before it is deregistered");
}

static void two_domains(char *heap)
{
	struct ibv_pd *one = new_pd(), *two = new_pd();
	struct ibv_mr *a = reg(one, heap, 64, RIGHTS), *b = reg(two, heap, 64, RIGHTS);
	uint64_t moved = pin_verified.moved;

	ok(passes(PAGES, 0), "a region in two domains is compared once");
	pin_mr_deregister(a);
	pin_domain_dealloc(one);
	kernel.offset[5] = 1;
	ok(passes(PAGES, 1), "and still is when one of them has gone");
	pin_mr_deregister(b);
	pin_domain_dealloc(two);
	kernel.offset[5] = 0;
	one = new_pd();
	a = reg(one, heap, 64, RIGHTS);
	ok(passes(PAGES, 0) && pin_verified.moved == moved + 1,
	   "pages that moved while nobody held them do not count");
	pin_mr_deregister(a);
	pin_domain_notice(one);
	kernel.offset[5] = 1;
	a = reg(one, heap, 64, RIGHTS);
	ok(passes(PAGES, 0) && pin_verified.moved == moved + 1,
	   "nor after a domain was lost unseen");
	pin_mr_deregister(a);
	pin_domain_dealloc(one);
	kernel.pins[0] = 0;
	kernel.offset[5] = 0;
}

static void evicted(char *heap)
{
	struct ibv_pd *pd = new_pd();
	uint64_t evictions = pin_pool.evicted, moved = pin_verified.moved;

	fake_verbs.limit = fake_verbs.registered + REGION;
	pin_mr_deregister(reg(pd, heap, 64, RIGHTS));
	kernel.offset[9] = 1;
	pin_mr_deregister(reg(pd, heap + REGION, 64, RIGHTS));
	ok(pin_pool.evicted == evictions + 1 && pin_verified.moved == moved + 1,
	   "what gives way is compared before it goes");
	pin_mr_deregister(reg(pd, heap, 64, RIGHTS));
	kernel.offset[9] = 0;
	kernel.error = -EPERM;
	ok(pin_verify(NULL) == -EPERM, "rights can be lost");
	pin_mr_deregister(reg(pd, heap + REGION, 64, RIGHTS));
	ok(pin_pool.evicted == evictions + 3 && pin_verified.moved == moved + 1,
	   "and registration goes on");
	kernel.error = 0;
	fake_verbs.limit = SIZE_MAX;
	pin_domain_dealloc(pd);
}

static void forked(char *heap)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS);
	int status = -1;
	pid_t child = fork();

	if (!child)
		_exit(pin_verify(NULL) != -ENOTSUP || (pin_verify_at_exit(), false));
	waitpid(child, &status, 0);
	ok(!status, "a child has nothing to verify");
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
}

#define ROUNDS 3000

/* Pages move as soon as nobody pins them, and other threads make it so all the time. */
static void *churn(void *seed)
{
	unsigned random = (unsigned)(uintptr_t)seed;
	struct ibv_pd *pd = new_pd();

	for (int i = 0; i < ROUNDS; i++) {
		const struct pin_region *r = pin_region_get((uint32_t)rand_r(&random) %
							    REGIONS);

		pin_mr_deregister(reg(pd, (void *)r->start, 100, RIGHTS));
		if (i % 100 == 50)
			pin_domain_disarm(pd);
	}
	pin_domain_dealloc(pd);
	return NULL;
}

static void together(void)
{
	uint64_t moved = pin_verified.moved, checked = pin_verified.checked;
	unsigned live = fake_verbs.live;
	pthread_t threads[3];

	fake_verbs.limit = fake_verbs.registered + 4 * REGION;
	for (uintptr_t i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, churn, (void *)(i + 1));
	for (int i = 0; i < 200; i++)
		pin_verify(NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	fake_verbs.limit = SIZE_MAX;
	ok(pin_verified.checked > checked && pin_verified.moved == moved,
	   "of %lu pages compared while regions come and go none has moved",
	   (unsigned long)(pin_verified.checked - checked));
	ok(fake_verbs.live == live, "and nothing is left");
}

static void withdrawn(char *heap)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS);

	ok(passes(PAGES, 0), "a region is compared");
	kernel.offset[2] = 77;
	kernel.withdraw_before = 2; /* the first of a pass is a trial */
	ok(passes(0, 0), "until it turns out that the program replaces its pages");
	kernel.offset[3] = 77;
	ok(passes(0, 0), "and no more from then on");
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
}

/* Of the machine's own kernel: by the time both are there no two have one frame. */
static void exchange(char *a, char *b)
{
	char *aside = mmap(NULL, PIN_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const int flags = MREMAP_MAYMOVE | MREMAP_FIXED;

	syscall(SYS_mremap, a, PIN_PAGE, PIN_PAGE, flags, aside);
	syscall(SYS_mremap, b, PIN_PAGE, PIN_PAGE, flags, a);
	syscall(SYS_mremap, aside, PIN_PAGE, PIN_PAGE, flags, b);
}

static void real(char *heap)
{
	struct ibv_pd *pd = new_pd();
	size_t moved = 77;
	struct ibv_mr *mr;

	kernel.real = true;
	for (size_t i = 0; i < REGION; i += PIN_PAGE)
		heap[i] = 1;
	mr = reg(pd, heap, 64, RIGHTS);
	if (pin_verify(NULL)) {
		ok(pin_verify(&moved) == -EPERM && moved == 77, "an ordinary user is told");
	} else {
		ok(pass().moved == 0 && pass().checked >= PAGES, "no page has moved");
		exchange(heap + 5 * PIN_PAGE, heap + 9 * PIN_PAGE);
		ok(pass().moved == 2, "two that change places are two");
		syscall(SYS_madvise, heap + 11 * PIN_PAGE, PIN_PAGE, MADV_DONTNEED);
		ok(pass().moved == 1, "one that is dropped is one");
		heap[11 * PIN_PAGE] = 1;
		ok(pass().moved == 0, "and none when there is a new one");
	}
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
	kernel.real = false;
}

/* The thread of PINALLOC_VERIFY=1 passes by itself. */
static void by_itself(char *heap)
{
	uint64_t checked = pin_verified.checked;
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr;

	pin_options.verify = 1;
	pin_verify_init();
	mr = reg(pd, heap, 64, RIGHTS);
	for (int i = 0; i < 5000 && pin_verified.checked == checked; i++)
		usleep(1000);
	ok(pin_verified.checked >= checked + PAGES, "every second is one pass");
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
}

int main(void)
{
	char *heap = NULL, *p;

	if (!lazy_pool())
		return 99;
	install();
	for (int i = 0; i < REGIONS; i++) {
		p = region();
		heap = heap ? heap : p;
	}
	switched_on(heap);
	counted(heap);
	two_domains(heap);
	evicted(heap);
	forked(heap);
	together();
	real(heap + REGION);
	withdrawn(heap);
	by_itself(heap + REGION);
	return done_testing();
}
