/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads send from memory, and receive into it, by a registration cache (cache.h), while they
 * replace its pages in every way: of mappings that are registered together with those of
 * other threads, and of heap blocks. Meanwhile children write their copies of it all, and pages
 * are moved and swapped out where the system permits that. If there are two adapters, the last
 * thread has the second. Prints TAP.
 *
 *     rdma-storm LISTENER SECONDS
 */
#include <config.h> /* for mremap() */

#include "test/programs/cache.h"
#include "test/programs/calls.h"

#include <fcntl.h>
#include <sys/wait.h>

enum { THREADS = 4, SLOTS = 64, PER_THREAD = SLOTS / THREADS, BLOCKS = 16 };
#define SLOT ((size_t)4 * PAGE)

/*
 * Arenas of SLOTS slots; slot i is of thread i % THREADS. Threads go on from one to the next,
 * as a cache soon keeps nothing where pages were replaced. Only in the first one pages are
 * discarded, as nothing is kept near such pages at all. Behind them each thread has a page.
 * Where the kernel chooses an address it does not come here: it might be where a thread has
 * just unmapped.
 */
#define ARENA  (SLOTS * SLOT)
#define ARENAS 1024
#define STAY   2048 /* rounds */
static char *const arenas = (char *)0x200000000000;

static struct ibv_context *context, *second; /* of another adapter, if there is one */
static struct ibv_pd *pd;
static _Atomic bool enough;

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

/* --- connections ------------------------------------------------------------------------ */

static bool is_alone(const struct worker *it)
{
	return it->number == THREADS - 1 && second != context;
}

static struct ibv_context *another(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *it = devices[1] ? ibv_open_device(devices[1]) : context;

	ibv_free_device_list(devices);
	return it;
}

static void enter_domain(struct worker *it)
{
	rdma_connect(&it->rdma, is_alone(it) ? ibv_alloc_pd(second) : pd);
	it->landing_mr = registered(it->rdma.pd, it->landing, SLOT);
}

static void leave_domain(struct worker *it)
{
	need(!ibv_dereg_mr(it->landing_mr) && (!is_alone(it) || !ibv_dealloc_pd(it->rdma.pd)));
}

/* --- registrations ------------------------------------------------------------------------ */

/* For one message, by one of the functions that programs have for it. */
struct own {
	struct ibv_mr *mr, *imported;
	struct ibv_mw *window;
};

/* A device may be gone for a moment. */
static struct ibv_mr *made(struct worker *it, char *at, size_t length, bool is_dmabuf,
			   int access)
{
	uint64_t iova = (uintptr_t)at;
	struct ibv_mr *mr;

	do
		mr = is_dmabuf ? ibv_reg_dmabuf_mr(it->rdma.pd, 0, length, iova, -1, access)
			       : ibv_reg_mr(it->rdma.pd, at, length, access);
	while (!mr && errno == EIO);
	need(mr);
	return mr;
}

/* What was registered of other memory. */
static struct ibv_mr *changed(struct worker *it, char *at, size_t length)
{
	char *other = it->blocks[draw(it, BLOCKS)].at;
	struct ibv_mr *mr = made(it, other ? other : it->landing, PAGE, false, RDMA_ACCESS);

	while (ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, at, length, 0))
		need(errno == EIO);
	return mr;
}

static void bind_window(struct worker *it, struct own *own, char *at, size_t length)
{
	struct ibv_mw_bind bind = {.bind_info = {own->mr, (uintptr_t)at, length, RDMA_ACCESS}};

	need((own->window = ibv_alloc_mw(it->rdma.pd, IBV_MW_TYPE_1)));
	need(!ibv_bind_mw(it->rdma.qp, own->window, &bind) && !rdma_wait(&it->rdma));
}

/*
 * Returns one with the keys. The stand-in for an adapter has all these functions, but room for
 * windows on the first only.
 */
static struct ibv_mr registration(struct worker *it, struct own *own, char *at, size_t length)
{
	uint64_t how = draw(it, is_alone(it) ? 4 : 5);
	int access = RDMA_ACCESS | (how == 4 ? IBV_ACCESS_MW_BIND : 0);
	struct ibv_mr mr;

	own->mr = how == 2 ? changed(it, at, length) : made(it, at, length, how == 3, access);
	if (how == 4)
		bind_window(it, own, at, length);
	if (how == 1)
		need((own->imported = ibv_import_mr(it->rdma.pd, own->mr->handle)));
	mr = own->imported ? *own->imported : *own->mr;
	mr.rkey = own->window ? own->window->rkey : mr.rkey;
	return mr;
}

static void give_up(struct own *own)
{
	if (own->imported)
		ibv_unimport_mr(own->imported);
	need((!own->window || !ibv_dealloc_mw(own->window)) && !ibv_dereg_mr(own->mr));
}

/* --- messages --------------------------------------------------------------------------- */

/* By a registration of the cache, or one for this message. */
static void message(struct worker *it, char *at, size_t length, char *start, char *end)
{
	bool is_sent = draw(it, 2), is_cached = !is_alone(it) && draw(it, 8);
	char *from = is_sent ? at : it->landing, *to = is_sent ? it->landing : at;
	struct cache_entry *entry = NULL;
	uint64_t seed = rdma_random(&it->random);
	struct ibv_mr mr, *from_mr, *to_mr;
	struct own own = {0};

	rdma_fill(from, length, seed);
	rdma_fill(to, length, ~seed);
	if (is_cached)
		entry = cache_hold(at, at + length, start, end);
	mr = entry ? *entry->mr : registration(it, &own, at, length);
	from_mr = is_sent ? &mr : it->landing_mr;
	to_mr = is_sent ? it->landing_mr : &mr;
	it->failed += !!(
		draw(it, 2)
			? rdma_write(&it->rdma, from, from_mr->lkey, to, to_mr->rkey, length)
			: rdma_read(&it->rdma, to, to_mr->lkey, from, from_mr->rkey, length));
	it->wrong += rdma_wrong(to, length, seed) != 0;
	if (entry)
		cache_release(entry);
	else
		give_up(&own);
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

/* Few lengths, so that one comes back soon. */
static char *some_memory(struct worker *it, size_t length)
{
	char *at;

	switch (draw(it, 4)) {
	case 0:
		need((at = malloc(length / 4)));
		memset(at, 1, length / 4);
		return realloc(at, length);
	case 1:
		return aligned_alloc((size_t)64 << draw(it, 7), length);
	case 2:
		return calloc(1, length);
	default:
		return malloc(length);
	}
}

/*
 * Behind malloc only pages of one block are replaced, which has its granule for itself: the
 * library does not serve that afterwards.
 */
static void by_block(struct worker *it)
{
	struct block *block = &it->blocks[draw(it, BLOCKS)];
	size_t length, offset;

	if (draw(it, 128) == 0) {
		replace(it, it->replaced, SLOT, true);
		message(it, it->replaced, SLOT, it->replaced, it->replaced + SLOT);
		return;
	}
	if (!block->at || draw(it, 4) == 0) {
		free(block->at);
		block->length = PAGE << draw(it, 3);
		need((block->at = some_memory(it, block->length)));
	}
	length = block->length < SLOT ? block->length : SLOT;
	offset = draw(it, block->length - length + 1);
	message(it, block->at + offset, length, block->at, block->at + block->length);
}

static void *work(void *arg)
{
	struct worker *it = arg;

	enter_domain(it);
	for (; !enough && !it->failed; it->rounds++)
		draw(it, 2) ? by_mapping(it) : by_block(it);
	rdma_disconnect(&it->rdma);
	leave_domain(it);
	return NULL;
}

/* --- the rest of the system ------------------------------------------------------------- */

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

static void start_worker(struct worker *it, unsigned number)
{
	it->number = it->random = number;
	it->scratch = arenas + ARENAS * ARENA + number * PAGE;
	need((it->replaced = aligned_alloc(2 * MIB, 2 * MIB)));
	/* In use while the keys around it are withdrawn, or not of the heap. */
	it->landing = number % 2 ? it->replaced + MIB : rdma_map(SLOT);
	need(!pthread_create(&it->thread, NULL, work, it));
}

int main(int argc, char **argv)
{
	struct worker workers[THREADS] = {0};
	unsigned rounds = 0, wrong = 0, failed = 0;
	double seconds;

	need(argc >= 3);
	seconds = atof(argv[2]);
	alarm(110 + (unsigned)seconds);
	need((context = rdma_open()) && (second = another()) && (pd = ibv_alloc_pd(context)));
	cache_open(pd, argv[1]);
	map_fixed(by_libc, arenas, ARENAS * ARENA + THREADS * PAGE);
	for (unsigned i = 0; i < THREADS; i++)
		start_worker(&workers[i], i);
	disturb(workers, rdma_now() + seconds);
	enough = true;
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		rounds += workers[i].rounds;
		wrong += workers[i].wrong;
		failed += workers[i].failed;
	}
	printf("# rounds %u hits %u registered %u told %u wrong %u\n", rounds, cache.hits,
	       cache.registered, cache.told, wrong);
	ok(rounds > 1000 && cache.hits > rounds / 16, "threads use memory that they replace");
	ok(!failed, "every message is sent: %u not", failed);
	ok(!wrong, "and right: %u wrong", wrong);
	return done_testing();
}
