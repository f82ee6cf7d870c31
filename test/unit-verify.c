/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Verification counts pages that move while they are registered, and nothing else. Mostly with
 * a simulated kernel that moves every page that is not pinned, because the real one hides page
 * frames from ordinary users.
 */
#include <config.h>

#include "allocator/frames.h"
#include "allocator/os.h"
#include "regpool/pool.h"
#include "regpool/verify.h"
#include "test/fake-kernel.h"
#include "test/spans.h"
#include "test/tap.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES  (PIECE / PIN_PAGE)
#define PIECES 8

/* The linker puts these in place of the library's (--wrap), and gives the real one. */
int __wrap_pin_frames_of(uintptr_t addr, size_t n_pages, uint64_t *frames);
int __real_pin_frames_of(uintptr_t addr, size_t n_pages, uint64_t *frames);

static char *heap;

static struct {
	pthread_mutex_t lock;
	unsigned pins[PIECES];	/* registrations of each piece */
	uint64_t round[PIECES]; /* in which frames its pages are while it is pinned */
	uint64_t rounds;	/* ever */
	uint64_t offset[PIECE / PIN_PAGE_LEAST]; /* added to the frames of piece 0 */
	unsigned absent;			 /* reads for which its page 7 is not there */
	unsigned reads;				 /* of frames, ever */
	unsigned replace_before;		 /* so many more reads piece 0 is replaced */
	unsigned passes_within; /* while something is registered, or deregistered */
	int error;		/* of reading */
	bool real;		/* the machine's own kernel is asked */
} kernel = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct pin_ibverbs pinning;
static const struct pin_ibverbs *fake;

static size_t piece_of(uintptr_t addr)
{
	return (addr - pin_reserve.base) / PIECE;
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

int __wrap_pin_frames_of(uintptr_t addr, size_t n_pages, uint64_t *frames)
{
	size_t number = piece_of(addr), first = (addr - pin_reserve.base) % PIECE / PIN_PAGE;

	if (kernel.real)
		return __real_pin_frames_of(addr, n_pages, frames);
	pthread_mutex_lock(&kernel.lock);
	kernel.reads++;
	if (kernel.replace_before && !--kernel.replace_before)
		fake_replace((void *)pin_reserve.base, 1);
	for (size_t i = 0; i < n_pages; i++)
		frames[i] = number < PIECES ? frame(number, first + i) : 1;
	pthread_mutex_unlock(&kernel.lock);
	return kernel.error;
}

static void pin_piece(size_t number, int by)
{
	if (number >= PIECES)
		return;
	if (!kernel.pins[number])
		kernel.round[number] = ++kernel.rounds;
	kernel.pins[number] += (unsigned)by;
}

static void pin(const struct ibv_mr *mr, int by)
{
	pthread_mutex_lock(&kernel.lock);
	for (size_t i = 0; i < mr->length; i += PIECE)
		pin_piece(piece_of((uintptr_t)mr->addr) + i / PIECE, by);
	pthread_mutex_unlock(&kernel.lock);
}

static struct ibv_mr *reg_and_pin(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				  unsigned access)
{
	struct ibv_mr *mr = fake->reg_mr_iova2(pd, addr, length, iova, access);

	for (unsigned i = 0; i < kernel.passes_within; i++)
		pin_verify(NULL);
	if (mr)
		pin(mr, 1);
	return mr;
}

static int dereg_and_unpin(struct ibv_mr *mr)
{
	pin(mr, -1);
	for (unsigned i = 0; i < kernel.passes_within; i++)
		pin_verify(NULL);
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

static void switched_on(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS);

	ok(mr && !kernel.reads, "with verification off, registering reads no page frames");
	kernel.error = -EPERM;
	ok(pin_verify(NULL) == -EPERM, "a kernel that hides page frames gives -EPERM");
	pin_mr_deregister(mr);
	mr = reg(pd, heap, 64, RIGHTS);
	ok(mr && kernel.reads == 1, "which does not turn verification on");
	kernel.error = 0;
	ok(passes(0, 0), "the first pass has nothing to compare with");
	ok(passes(PAGES, 0), "the next one compares what was registered before");
	ok(!pin_verify(NULL), "the result may be discarded");
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
	ok(passes(0, 0), "memory that is not registered is not compared");
}

static void counted(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS);

	ok(passes(PAGES, 0), "memory registered later is compared from then on");
	kernel.offset[3] = kernel.offset[PAGES - 1] = 5000;
	ok(passes(PAGES, 2), "two pages that move are counted");
	ok(passes(PAGES, 0), "a move is counted once");
	kernel.offset[3] = 0;
	ok(passes(PAGES, 1), "another move is counted again");
	kernel.absent = 3;
	ok(passes(PAGES, 0) && !kernel.absent, "a page the kernel puts back has not moved");
	kernel.absent = 1000;
	ok(passes(PAGES, 1), "a page that stays missing has moved");
	kernel.absent = 0;
	ok(passes(PAGES - 1, 0) && passes(PAGES, 0), "it is compared again after it is back");
	kernel.offset[PAGES - 1] = 0;
	pin_mr_deregister(mr);
	kernel.error = -EIO;
	ok(pin_verify(NULL) == -EIO, "a read error is returned");
	kernel.error = 0;
	pin_domain_dealloc(pd);
	ok(pin_verified.moved == 5, "a page is compared before it is deregistered");
}

static void two_domains(void)
{
	struct ibv_pd *one = new_pd(), *two = new_pd();
	struct ibv_mr *a = reg(one, heap, 64, RIGHTS), *b = reg(two, heap, 64, RIGHTS);
	uint64_t moved = pin_verified.moved;

	ok(passes(PAGES, 0), "memory in two domains is compared once");
	pin_mr_deregister(a);
	pin_domain_dealloc(one);
	kernel.offset[5] = 1;
	ok(passes(PAGES, 1), "it still is when one domain has gone");
	pin_mr_deregister(b);
	pin_domain_dealloc(two);
	kernel.offset[5] = 0;
	one = new_pd();
	a = reg(one, heap, 64, RIGHTS);
	ok(passes(PAGES, 0) && pin_verified.moved == moved + 1,
	   "pages that moved while not registered do not count");
	pin_mr_deregister(a);
	pin_domain_notice(one);
	kernel.offset[5] = 1;
	a = reg(one, heap, 64, RIGHTS);
	ok(passes(PAGES, 0) && pin_verified.moved == moved + 1,
	   "nor do pages of a domain that disappeared unseen");
	pin_mr_deregister(a);
	pin_domain_dealloc(one);
	kernel.pins[0] = 0;
	kernel.offset[5] = 0;
}

static void evicted(void)
{
	struct ibv_pd *pd = new_pd();
	uint64_t evictions = pin_pool.evicted, moved = pin_verified.moved;

	fake_verbs.limit = fake_verbs.registered + PIECE;
	pin_mr_deregister(reg(pd, heap, 64, RIGHTS));
	kernel.offset[9] = 1;
	pin_mr_deregister(reg(pd, heap + PIECE, 64, RIGHTS));
	ok(pin_pool.evicted == evictions + 1 && pin_verified.moved == moved + 1,
	   "an evicted memory region is compared before");
	pin_mr_deregister(reg(pd, heap, 64, RIGHTS));
	kernel.offset[9] = 0;
	kernel.error = -EPERM;
	ok(pin_verify(NULL) == -EPERM, "losing the permission gives -EPERM");
	pin_mr_deregister(reg(pd, heap + PIECE, 64, RIGHTS));
	ok(pin_pool.evicted == evictions + 3 && pin_verified.moved == moved + 1,
	   "registration continues");
	kernel.error = 0;
	fake_verbs.limit = SIZE_MAX;
	pin_domain_dealloc(pd);
}

/* Pages may move until they are pinned, and from when they are not. */
static void meanwhile(void)
{
	uint64_t moved = pin_verified.moved;
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr;

	kernel.passes_within = 2;
	mr = reg(pd, heap, 64, RIGHTS);
	ok(mr && pin_verified.moved == moved,
	   "memory is not compared while it is being registered");
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
	kernel.passes_within = 0;
	ok(pin_verified.moved == moved, "nor while it is being deregistered");
}

static void forked(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS);
	int status = -1;
	pid_t child = fork();

	if (!child)
		_exit(pin_verify(NULL) != -ENOTSUP || (pin_verify_at_exit(), false));
	waitpid(child, &status, 0);
	ok(!status, "a forked child has nothing to verify");
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
}

#define ROUNDS 3000

/* Some of the heap; in scarcity it may be refused. */
static void register_some(struct ibv_pd *pd, unsigned *random)
{
	size_t first = (size_t)rand_r(random) % PIECES, n = 1 + (size_t)rand_r(random) % 3;
	struct ibv_mr *mr;

	n = first + n > PIECES ? 1 : n;
	mr = reg(pd, heap + first * PIECE, n * PIECE, RIGHTS);
	if (mr)
		pin_mr_deregister(mr);
}

/* Pages move as soon as nobody pins them, and other threads make it so all the time. */
static void *churn(void *seed)
{
	unsigned random = (unsigned)(uintptr_t)seed;
	struct ibv_pd *pd = new_pd();

	for (int i = 0; i < ROUNDS; i++) {
		register_some(pd, &random);
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

	fake_verbs.limit = fake_verbs.registered + 10 * PIECE;
	for (uintptr_t i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, churn, (void *)(i + 1));
	for (int i = 0; i < 200; i++)
		pin_verify(NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	fake_verbs.limit = SIZE_MAX;
	ok(pin_verified.checked > checked && pin_verified.moved == moved,
	   "of %lu pages compared during registrations and deregistrations none has moved",
	   (unsigned long)(pin_verified.checked - checked));
	ok(fake_verbs.live == live, "nothing is left");
}

static void replaced(void)
{
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr = reg(pd, heap, 64, RIGHTS);

	ok(passes(PAGES, 0), "memory is compared");
	kernel.offset[2] = 77;
	kernel.replace_before = 2; /* the first of a pass is a trial */
	ok(passes(0, 0), "it is not compared once the program has replaced its pages");
	kernel.offset[3] = 77;
	ok(passes(0, 0), "it stays so");
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

static void real(char *p)
{
	struct ibv_pd *pd = new_pd();
	size_t moved = 77;
	struct ibv_mr *mr;

	kernel.real = true;
	for (size_t i = 0; i < PIECE; i += PIN_PAGE)
		p[i] = 1;
	mr = reg(pd, p, 64, RIGHTS);
	if (pin_verify(NULL)) {
		ok(pin_verify(&moved) == -EPERM && moved == 77, "an ordinary user gets -EPERM");
	} else {
		ok(pass().moved == 0 && pass().checked >= PAGES, "no page has moved");
		exchange(p + 5 * PIN_PAGE, p + 9 * PIN_PAGE);
		ok(pass().moved == 2, "two pages that are exchanged count as two");
		syscall(SYS_madvise, p + 11 * PIN_PAGE, PIN_PAGE, MADV_DONTNEED);
		ok(pass().moved == 1, "a discarded page counts as one");
		p[11 * PIN_PAGE] = 1;
		ok(pass().moved == 0, "the page that replaces it has not moved");
	}
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
	kernel.real = false;
}

/* The thread of PINALLOC_VERIFY=1 passes by itself. */
static void by_itself(char *p)
{
	uint64_t checked = pin_verified.checked;
	struct ibv_pd *pd = new_pd();
	struct ibv_mr *mr;

	pin_options.verify = 1;
	pin_verify_init();
	mr = reg(pd, p, 64, RIGHTS);
	for (int i = 0; i < 5000 && pin_verified.checked == checked; i++)
		usleep(1000);
	ok(pin_verified.checked >= checked + PAGES, "there is a pass every second");
	pin_mr_deregister(mr);
	pin_domain_dealloc(pd);
}

int main(void)
{
	struct pin_span *span = NULL;

	if (!lazy_pool())
		return 99;
	fake_kernel.keeps_memory = true;
	install();
	heap = grow(&span, PIECES * PIECE);
	switched_on();
	counted();
	two_domains();
	evicted();
	meanwhile();
	forked();
	together();
	real(heap + PIECE);
	replaced();
	by_itself(heap + PIECE);
	return done_testing();
}
