/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A registration cache that only learns of unmapped memory from the library, like UCX's: it
 * registers more than requested, queues notifications for later, and deregisters what is in use
 * afterwards. Threads replace their own pages in every way, interleaved with those of others,
 * and send from them. Prints TAP.
 *
 *     rdma-watch-model LISTENER SECONDS
 */
#include <config.h> /* for mremap() */

#include "test/programs/rdma-watch.h"

enum { THREADS = 4, SLOTS = 64, PER_THREAD = SLOTS / THREADS, ENTRIES = 256 };
#define SLOT ((size_t)4 * PAGE)

static struct ibv_pd *pd;
static char *arena; /* SLOTS slots; slot i is of thread i % THREADS */
static _Atomic bool enough;
static pthread_barrier_t are_connected;

/* --- the cache ---------------------------------------------------------------------- */

static struct entry {
	char *start, *end;
	struct ibv_mr *mr; /* NULL: free */
	unsigned users;
	bool is_gone;
} entries[ENTRIES];
static pthread_mutex_t cache = PTHREAD_MUTEX_INITIALIZER;

static struct {
	char *start, *end;
} gone[4096];
static unsigned n_gone;
static bool all_gone;
static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;
static unsigned n_hits, n_registered, n_fallen_back;

static void take_down(void *addr, size_t length)
{
	pthread_mutex_lock(&queue);
	if (n_gone == sizeof gone / sizeof *gone) {
		all_gone = true;
	} else {
		gone[n_gone].start = addr;
		gone[n_gone++].end = (char *)addr + length;
	}
	pthread_mutex_unlock(&queue);
}

static void drop(struct entry *entry)
{
	need(!ibv_dereg_mr(entry->mr));
	entry->mr = NULL;
}

static bool has_gone(const struct entry *entry)
{
	bool found = all_gone;

	for (unsigned i = 0; i < n_gone && !found; i++)
		found = gone[i].start < entry->end && entry->start < gone[i].end;
	return found;
}

/* With the cache's lock. Nothing is deregistered with the queue's: that waits for its holder.
 */
static void deal_with_gone(void)
{
	pthread_mutex_lock(&queue);
	for (int i = 0; i < ENTRIES; i++)
		entries[i].is_gone |= entries[i].mr && has_gone(&entries[i]);
	n_gone = 0;
	all_gone = false;
	pthread_mutex_unlock(&queue);
	for (int i = 0; i < ENTRIES; i++)
		if (entries[i].mr && entries[i].is_gone && !entries[i].users)
			drop(&entries[i]);
}

static struct entry *free_entry(void)
{
	for (int i = 0; i < ENTRIES; i++)
		if (!entries[i].mr)
			return &entries[i];
	for (int i = 0; i < ENTRIES; i++)
		if (!entries[i].users) {
			drop(&entries[i]);
			return &entries[i];
		}
	need(false);
	return NULL;
}

static struct entry *cached(char *start, char *end)
{
	for (int i = 0; i < ENTRIES; i++)
		if (entries[i].mr && !entries[i].is_gone && entries[i].start <= start &&
		    entries[i].end >= end)
			return &entries[i];
	return NULL;
}

/* With neighbours, if they are there. */
static struct entry *make_entry(char *slot, uint64_t *random)
{
	struct entry *entry = free_entry();
	size_t n = (size_t)1 << rdma_random(random) % 3;

	entry->start = arena + (size_t)(slot - arena) / SLOT / n * n * SLOT;
	entry->end = entry->start + n * SLOT;
	entry->mr = ibv_reg_mr(pd, entry->start, (size_t)(entry->end - entry->start),
			       RDMA_ACCESS);
	if (!entry->mr) {
		n_fallen_back++;
		entry->start = slot;
		entry->end = slot + SLOT;
		need((entry->mr = ibv_reg_mr(pd, slot, SLOT, RDMA_ACCESS)));
	}
	entry->users = 0;
	entry->is_gone = false;
	n_registered++;
	return entry;
}

static struct entry *hold(char *slot, uint64_t *random)
{
	struct entry *entry;

	pthread_mutex_lock(&cache);
	deal_with_gone();
	entry = cached(slot, slot + SLOT);
	n_hits += entry != NULL;
	if (!entry)
		entry = make_entry(slot, random);
	entry->users++;
	pthread_mutex_unlock(&cache);
	return entry;
}

static void release(struct entry *entry)
{
	pthread_mutex_lock(&cache);
	entry->users--;
	pthread_mutex_unlock(&cache);
}

/* --- threads -------------------------------------------------------------------------- */

/* Nobody lets the kernel choose an address meanwhile, as it might be where another has just
 * unmapped: so do the queues of a connection, hence are_connected. */
static void replace(char *slot, char *other, uint64_t *random)
{
	size_t part = PAGE << rdma_random(random) % 3;
	char *p = slot + rdma_random(random) % (SLOT / part) * part;

	switch (rdma_random(random) % 7) {
	case 0:
		map_over(p, part);
		break;
	case 1:
		need(!munmap(p, part));
		map_over(p, part);
		break;
	case 2:
		map_over(other, part);
		need(mremap(other, part, part, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
		break;
	case 3:
		/* A page at a time: not what is watched in part. */
		need(mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, other) == other);
		map_over(p, PAGE);
		break;
	case 4:
		need(raw_call(SYS_mmap, (long)p, (long)part, WRITABLE, ANONYMOUS | MAP_FIXED,
			      -1) == (long)p);
		break;
	default:
		need(!madvise(p, part, MADV_DONTNEED));
	}
}

struct worker {
	unsigned number;
	char *scratch;
	unsigned rounds, wrong, failed;
};

static void send_one(struct worker *it, struct rdma *rdma, char *landing,
		     struct ibv_mr *landing_mr, uint64_t *random)
{
	size_t i = rdma_random(random) % PER_THREAD * THREADS + it->number;
	char *slot = arena + i * SLOT;
	uint64_t seed = rdma_random(random);
	struct entry *entry;

	/* Where pages were discarded nothing is kept any more: some hits come first. */
	if (it->rounds > 8 * PER_THREAD && rdma_random(random) % 4)
		replace(slot, it->scratch, random);
	rdma_fill(slot, SLOT, seed);
	entry = hold(slot, random);
	it->failed += rdma_write(rdma, slot, entry->mr->lkey, landing, landing_mr->rkey,
				 SLOT) != 0;
	release(entry);
	it->wrong += rdma_wrong(landing, SLOT, seed) != 0;
	it->rounds++;
}

static void *work(void *arg)
{
	struct worker *it = arg;
	uint64_t random = it->number;
	char *landing = malloc(SLOT);
	struct ibv_mr *landing_mr;
	struct rdma rdma;

	need(landing);
	rdma_connect(&rdma, pd);
	landing_mr = registered(pd, landing, SLOT);
	pthread_barrier_wait(&are_connected);
	while (!enough && !it->failed)
		send_one(it, &rdma, landing, landing_mr, &random);
	need(!ibv_dereg_mr(landing_mr));
	rdma_disconnect(&rdma);
	return NULL;
}

int main(int argc, char **argv)
{
	struct worker workers[THREADS] = {{0, NULL, 0, 0, 0}};
	unsigned rounds = 0, wrong = 0, failed = 0;
	pthread_t threads[THREADS];

	need(argc == 3);
	within(110);
	listen_by(argv[1], take_down);
	pd = ibv_alloc_pd(rdma_open());
	need(pd);
	arena = map_pages(SLOTS * SLOT);
	need(!pthread_barrier_init(&are_connected, NULL, THREADS));
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i].number = i;
		workers[i].scratch = map_pages(SLOT);
		need(!pthread_create(&threads[i], NULL, work, &workers[i]));
	}
	sleep((unsigned)atoi(argv[2]));
	enough = true;
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		rounds += workers[i].rounds;
		wrong += workers[i].wrong;
		failed += workers[i].failed;
	}
	printf("# %u rounds, %u hits, %u registered, %u of them alone\n", rounds, n_hits,
	       n_registered, n_fallen_back);
	ok(rounds > 50 && n_hits, "threads send from memory that they replace");
	ok(!failed, "every message is sent: %u not", failed);
	ok(!wrong, "and right: %u wrong", wrong);
	return done_testing();
}
