/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads send from memory, and receive into it, by a registration cache (cache.h), while they
 * replace its pages in every way: of mappings that are registered together with those of
 * other threads, and of heap blocks. Meanwhile children write their copies of it all, and pages
 * are moved and swapped out where the system permits that. Prints TAP.
 *
 *     rdma-watch-model LISTENER SECONDS
 */
#include <config.h> /* for mremap() */

#include "test/programs/cache.h"
#include "test/programs/calls.h"

#include <sys/wait.h>

enum { THREADS = 4, SLOTS = 64, PER_THREAD = SLOTS / THREADS, BLOCKS = 16 };
#define SLOT ((size_t)4 * PAGE)

/*
 * Arenas of SLOTS slots; slot i is of thread i % THREADS. Threads go on from one to the next,
 * as a cache soon keeps nothing where pages were replaced. Only in the first one pages are
 * discarded, as nothing is kept near such pages at all.
 */
#define ARENA  (SLOTS * SLOT)
#define ARENAS 1024
#define STAY   2048 /* rounds */
static char *arenas;

static struct ibv_pd *pd;
static _Atomic bool enough;
static pthread_barrier_t are_connected;

struct worker {
	pthread_t thread;
	unsigned number;
	uint64_t random;
	char *scratch, *landing, *replaced;
	struct ibv_mr *landing_mr;
	struct rdma rdma;
	struct block {
		char *at;
		size_t length;
	} blocks[BLOCKS];
	unsigned rounds, wrong, failed;
	size_t arena;
};

static uint64_t draw(struct worker *it, uint64_t limit)
{
	return rdma_random(&it->random) % limit;
}

/* --- pages that are replaced ------------------------------------------------------------ */

static void map_fixed(call by, char *at, size_t length)
{
	need(by(SYS_mmap, (long)at, (long)length, WRITABLE, ANONYMOUS | MAP_FIXED, -1) ==
	     (long)at);
}

static void move(call by, char *from, char *to)
{
	need(by(SYS_mremap, (long)from, (long)PAGE, (long)PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		(long)to) == (long)to);
}

/* Nobody lets the kernel choose an address meanwhile, as it might be where another has just
 * unmapped: so do the queues of a connection, hence are_connected. */
static void replace(struct worker *it, char *at, size_t length, bool may_discard)
{
	static const int advice[] = {MADV_DONTNEED, MADV_FREE, MADV_PAGEOUT};
	call by = draw(it, 2) ? raw_call : by_libc;
	size_t n = length / PAGE;
	char *p = at + draw(it, n) * PAGE;
	size_t part = (1 + draw(it, n - (size_t)(p - at) / PAGE)) * PAGE;

	switch (draw(it, may_discard ? 6 : 4)) {
	case 0:
		map_fixed(by, p, part);
		break;
	case 1:
		need(!by(SYS_munmap, (long)p, (long)part, 0, 0, 0));
		map_fixed(by, p, part);
		break;
	case 2:
		map_fixed(by, it->scratch, PAGE);
		move(by, it->scratch, p);
		break;
	case 3:
		move(by, p, it->scratch);
		map_fixed(by, p, PAGE);
		break;
	default:
		need(!by(SYS_madvise, (long)p, (long)part, advice[draw(it, 3)], 0, 0) ||
		     errno == EINVAL);
	}
}

/* The caches forget what was replaced; a mapping left behind is not watched for ever. */
static void leave(const struct worker *it, char *arena)
{
	for (unsigned i = it->number; i < SLOTS; i += THREADS)
		map_fixed(raw_call, arena + i * SLOT, SLOT);
}

/* --- messages --------------------------------------------------------------------------- */

static void message(struct worker *it, char *at, size_t length, char *start, char *end)
{
	bool is_sent = draw(it, 2);
	uint64_t seed = rdma_random(&it->random);
	struct cache_entry *entry;

	rdma_fill(is_sent ? at : it->landing, length, seed);
	rdma_fill(is_sent ? it->landing : at, length, ~seed);
	entry = cache_hold(at, at + length, start, end);
	it->failed += (is_sent ? rdma_write(&it->rdma, at, entry->mr->lkey, it->landing,
					    it->landing_mr->rkey, length)
			       : rdma_write(&it->rdma, it->landing, it->landing_mr->lkey, at,
					    entry->mr->rkey, length)) != 0;
	cache_release(entry);
	it->wrong += rdma_wrong(is_sent ? it->landing : at, length, seed) != 0;
}

/* A cache registers neighbours, too, which are of other threads. */
static void by_mapping(struct worker *it)
{
	size_t arena = 1 + it->rounds / STAY % (ARENAS - 1), i, n = (size_t)1 << draw(it, 3);
	bool may_discard = draw(it, 32) == 0;
	char *slot, *start;

	if (arena != it->arena)
		leave(it, arenas + it->arena * ARENA);
	it->arena = arena;
	arena = may_discard ? 0 : arena;
	i = draw(it, PER_THREAD) * THREADS + it->number;
	slot = arenas + arena * ARENA + i * SLOT;
	start = arenas + arena * ARENA + i / n * n * SLOT;
	if (draw(it, 64) == 0)
		replace(it, slot, SLOT, may_discard);
	message(it, slot, SLOT, start, start + n * SLOT);
}

/*
 * Behind malloc only pages of one block are replaced, which has its granule for itself: the
 * library does not serve that afterwards.
 */
static void by_block(struct worker *it)
{
	struct block *block = &it->blocks[draw(it, BLOCKS)];

	if (draw(it, 128) == 0) {
		replace(it, it->replaced, SLOT, true);
		message(it, it->replaced, SLOT, it->replaced, it->replaced + SLOT);
		return;
	}
	if (!block->at || draw(it, 4) == 0) {
		free(block->at);
		block->length = PAGE << draw(it, 3);
		need((block->at = aligned_alloc(draw(it, 2) ? PAGE : 64, block->length)));
	}
	message(it, block->at, block->length, block->at, block->at + block->length);
}

static void *work(void *arg)
{
	struct worker *it = arg;

	need((it->replaced = aligned_alloc(2 * MIB, 2 * MIB)));
	/* In use while the keys around it are withdrawn, or not of the heap. */
	it->landing = it->number % 2 ? it->replaced + MIB : rdma_map(SLOT);
	rdma_connect(&it->rdma, pd);
	it->landing_mr = registered(pd, it->landing, SLOT);
	pthread_barrier_wait(&are_connected);
	for (; !enough && !it->failed; it->rounds++)
		draw(it, 2) ? by_mapping(it) : by_block(it);
	need(!ibv_dereg_mr(it->landing_mr));
	rdma_disconnect(&it->rdma);
	return NULL;
}

/* --- the rest of the system ----------------------------------------------------------------
 */

/* What is registered all the time is in use there as well. */
static void have_child(const struct worker *workers)
{
	pid_t child = fork();
	int status;

	need(child >= 0);
	if (!child) {
		for (int i = 0; i < 16; i++)
			memset(malloc(SLOT), 1, SLOT);
		for (int i = 0; i < THREADS; i++)
			memset(workers[i].landing, 1, SLOT);
		_exit(0);
	}
	need(waitpid(child, &status, 0) == child && !status);
}

static void disturb(const struct worker *workers, double deadline)
{
	int fd = open("/proc/sys/vm/compact_memory", O_WRONLY | O_CLOEXEC);

	for (unsigned i = 0; rdma_now() < deadline; i++) {
		have_child(workers);
		madvise(arenas, ARENAS * ARENA, i % 2 ? MADV_MERGEABLE : MADV_COLD);
		if (i % 16 == 0 && write(fd, "1", 1) < 0 && i == 0)
			printf("# memory cannot be compacted: %s\n", strerror(errno));
		usleep(100000);
	}
	close(fd);
}

int main(int argc, char **argv)
{
	struct worker workers[THREADS] = {0};
	unsigned rounds = 0, wrong = 0, failed = 0;
	double seconds;

	need(argc == 3);
	seconds = atof(argv[2]);
	within(110 + (unsigned)seconds);
	need((pd = ibv_alloc_pd(rdma_open())));
	cache_open(pd, argv[1]);
	arenas = rdma_map(ARENAS * ARENA);
	need(!pthread_barrier_init(&are_connected, NULL, THREADS + 1));
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i].number = workers[i].random = i;
		workers[i].scratch = map_pages(PAGE);
		need(!pthread_create(&workers[i].thread, NULL, work, &workers[i]));
	}
	pthread_barrier_wait(&are_connected);
	disturb(workers, rdma_now() + seconds);
	enough = true;
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		rounds += workers[i].rounds;
		wrong += workers[i].wrong;
		failed += workers[i].failed;
	}
	printf("# %u rounds, %u hits, %u registered, %u times told\n", rounds, cache.hits,
	       cache.registered, cache.told);
	ok(rounds > 1000 && cache.hits > rounds / 8, "threads use memory that they replace");
	ok(!failed, "every message is sent: %u not", failed);
	ok(!wrong, "and right: %u wrong", wrong);
	return done_testing();
}
