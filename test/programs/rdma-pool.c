/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-pool CASE: what pinalloc.h says of pools, one case at a time. Ends with status 2 where
 * that is not so.
 */
#define _GNU_SOURCE
#include "preload/pinalloc.h"
#include "test/programs/rdma.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (96 * MIB)
#define MOST  64

static struct rdma rdma;

static struct pinalloc_stats figures(void)
{
	struct pinalloc_stats stats = {0};

	pinalloc_stats(&stats, sizeof stats);
	return stats;
}

static struct ibv_pd *new_domain(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);

	need(pd && !pinalloc_enable(pd, RDMA_ACCESS));
	return pd;
}

static struct pinalloc_pool *create(struct pinalloc_pool_options options)
{
	struct pinalloc_pool *pool = pinalloc_pool_create(&options, sizeof options);

	need(pool);
	return pool;
}

static void *take(struct pinalloc_pool *pool, size_t n_bytes)
{
	void *p = pinalloc_pool_alloc(pool, n_bytes, 0);

	need(p && !((uintptr_t)p % 64));
	return p;
}

/* --- keys: slices have keys in every domain, and nothing is registered for them ------ */

static void send(char *from, char *to, size_t n_bytes)
{
	struct pinalloc_key near, far;
	struct ibv_mr *mr;

	need(!pinalloc_lookup(rdma.pd, from, n_bytes, RDMA_ACCESS, &near));
	need(!pinalloc_lookup(rdma.pd, to, n_bytes, RDMA_ACCESS, &far));
	need(rdma_sends(&rdma, from, near.lkey, to, far.rkey, n_bytes));
	need((mr = ibv_reg_mr(rdma.pd, to, n_bytes, RDMA_ACCESS)));
	need(rdma_sends(&rdma, to, mr->lkey, from, near.rkey, n_bytes) && !ibv_dereg_mr(mr));
}

/* Memory regions that requests waited for. The thread that registers ahead counts its own
 * twice, the second time a moment later. */
static uint64_t waited_for(void)
{
	struct pinalloc_stats now = figures();

	return now.mr_created - now.mr_ahead;
}

static void try_domain(struct pinalloc_pool *pool, struct ibv_pd *pd)
{
	uint64_t made = waited_for();
	char *p, *q;

	rdma_connect(&rdma, pd);
	for (size_t n = 1; n < BYTES / 3; n *= 7) {
		p = take(pool, n);
		q = take(pool, n);
		send(p, q, n);
		need(!pinalloc_pool_free(pool, p) && !pinalloc_pool_free(pool, q));
	}
	for (int i = 0; waited_for() != made && i < 1000; i++)
		usleep(1000);
	need(waited_for() == made && !figures().passed_through);
	rdma_disconnect(&rdma);
}

static void keys(void)
{
	struct ibv_context *context = rdma_open();
	struct ibv_pd *first = new_domain(context), *second;
	struct pinalloc_pool *pool = create((struct pinalloc_pool_options){.bytes = BYTES});

	need(figures().pinned >= BYTES);
	try_domain(pool, first);
	second = new_domain(context);
	need(figures().registered >= 2 * BYTES);
	try_domain(pool, second);
	try_domain(pool, first);
	need(!pinalloc_pool_destroy(pool));
}

/* --- segments: who registers elsewhere is told in time -------------------------------- */

static struct {
	char *start;
	size_t length;
} told[MOST];
static unsigned n_told, n_gone;
static int refuses;

static size_t absent(char *start, size_t length)
{
	unsigned char *pages = malloc(length / 4096);
	size_t n = 0;

	need(pages && !mincore(start, length, pages));
	for (size_t i = 0; i < length / 4096; i++)
		n += !(pages[i] & 1);
	free(pages);
	return n;
}

static int on_segment(void *start, size_t length, int is_added, void *arg)
{
	unsigned i;

	need(arg == &rdma);
	if (!is_added) {
		for (i = 0; i < n_told && told[i].start != start; i++)
			;
		need(i < n_told && told[i].length == length);
		n_gone++;
		return 0;
	}
	need(!absent(start, length));
	if (refuses)
		return refuses;
	told[n_told].start = start;
	told[n_told++].length = length;
	return 0;
}

static int is_told(const char *p, size_t n_bytes)
{
	for (unsigned i = 0; i < n_told; i++)
		if (p >= told[i].start && p + n_bytes <= told[i].start + told[i].length)
			return 1;
	return 0;
}

static void segments(void)
{
	struct pinalloc_pool_options options = {.bytes = 16 * MIB,
						.flags = PINALLOC_POOL_GROWS,
						.on_segment = on_segment,
						.arg = &rdma};
	struct pinalloc_pool *pool;
	void *slices[60];
	size_t mapped;

	refuses = EDQUOT;
	mapped = figures().live;
	need(!pinalloc_pool_create(&options, sizeof options) && errno == EDQUOT);
	need(figures().live - mapped < MIB);
	refuses = 0;
	pool = create(options);
	need(n_told == 1 && told[0].length == 16 * MIB);
	for (int i = 0; i < 60; i++) {
		slices[i] = take(pool, 3 * MIB);
		need(is_told(slices[i], 3 * MIB));
	}
	need(n_told > 5 && n_told < 60);
	refuses = ENOSPC;
	need(!pinalloc_pool_alloc(pool, 500 * MIB, 0) && errno == ENOSPC);
	need(pinalloc_pool_destroy(pool) == -EBUSY && !n_gone);
	for (int i = 0; i < 60; i++)
		need(!pinalloc_pool_free(pool, slices[i * 7 % 60]));
	need(!pinalloc_pool_destroy(pool) && n_gone == n_told);
}

/* --- back: the heap gets the memory of a pool that is destroyed ----------------------- */

static void back(void)
{
	struct pinalloc_pool *pool = create((struct pinalloc_pool_options){.bytes = BYTES});
	struct pinalloc_stats had = figures(), has;
	void *slice = take(pool, BYTES), *volatile block;

	need(!absent(slice, BYTES) && had.live >= BYTES);
	memset(slice, 7, BYTES);
	need(!pinalloc_pool_free(pool, slice) && !pinalloc_pool_destroy(pool));
	has = figures();
	need(had.live - has.live >= BYTES && has.mapped >= had.mapped);
	block = malloc(BYTES);
	need((uintptr_t)block <= (uintptr_t)slice && figures().mapped == has.mapped);
	free(block);
	pool = create((struct pinalloc_pool_options){.bytes = BYTES});
	need(figures().mapped == has.mapped && !pinalloc_pool_destroy(pool));
}

/* --- errors ---------------------------------------------------------------------------- */

#define refused(error, ...)                                                                \
	do {                                                                               \
		struct pinalloc_pool_options options = {__VA_ARGS__};                      \
                                                                                           \
		errno = 0;                                                                 \
		need(!pinalloc_pool_create(&options, sizeof options) && errno == (error)); \
	} while (0)

static void errors(void)
{
	struct {
		struct pinalloc_pool_options known;
		int later;
	} longer = {.known.bytes = MIB};
	struct pinalloc_pool *pool, *other;
	char *p;

	need(!pinalloc_pool_create(NULL, 0) && errno == EINVAL);
	refused(EINVAL, .bytes = 0);
	refused(EINVAL, .bytes = MIB, .flags = 8);
	refused(EINVAL, .bytes = MIB, .page_size = 4096);
	refused(EINVAL, .bytes = MIB, .flags = PINALLOC_POOL_ON_NODE, .node = 1023);
	refused(EINVAL, .bytes = MIB, .flags = PINALLOC_POOL_ON_NODE, .node = 1u << 31);
	refused(ENOMEM, .bytes = (size_t)1 << 45);
	refused(ENOMEM, .bytes = SIZE_MAX);
	pool = pinalloc_pool_create(&longer.known, sizeof longer);
	need(pool && !pinalloc_pool_destroy(pool));
	longer.later = 1;
	need(!pinalloc_pool_create(&longer.known, sizeof longer) && errno == EINVAL);
	pool = create(
		(struct pinalloc_pool_options){.bytes = MIB, .flags = PINALLOC_POOL_ON_NODE});
	other = create((struct pinalloc_pool_options){.bytes = MIB});
	need(!pinalloc_pool_alloc(pool, MIB, 65) && errno == EINVAL);
	need(!pinalloc_pool_alloc(NULL, MIB, 0) && errno == EINVAL);
	need(!pinalloc_pool_alloc(pool, 100 * MIB, 0) && errno == ENOMEM);
	need(!pinalloc_pool_alloc(pool, SIZE_MAX, 0) && (errno == ENOMEM || errno == EFBIG));
	need(!pinalloc_pool_alloc(pool, SIZE_MAX - 62, 64) &&
	     (errno == ENOMEM || errno == EFBIG));
	need(!pinalloc_pool_alloc(pool, 64, 3) && errno == EINVAL);
	for (int bit = 45; bit < 64; bit++)
		need(!pinalloc_pool_alloc(pool, 64, (size_t)1 << bit) && errno == ENOMEM);
	need((p = pinalloc_pool_alloc(pool, 0, 1)) && !((uintptr_t)p % 64));
	need(!pinalloc_pool_free(pool, p));
	need((p = pinalloc_pool_alloc(pool, 100000, MIB)) && !((uintptr_t)p % MIB));
	need(pinalloc_pool_free(other, p) == -EINVAL);
	need(pinalloc_pool_free(pool, p + 1) == -EINVAL);
	need(pinalloc_pool_free(pool, p + 65536) == -EINVAL);
	need(pinalloc_pool_free(pool, malloc(10)) == -EINVAL);
	need(!pinalloc_pool_free(pool, p) && pinalloc_pool_free(pool, p) == -EINVAL);
	need(!pinalloc_pool_free(pool, NULL) && !pinalloc_pool_destroy(NULL));
	need(!pinalloc_pool_destroy(pool) && !pinalloc_pool_destroy(other));
}

/* --- threads: those that touch are gone; a pool is everybody's -------------------------- */

static unsigned n_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	unsigned n = 0;

	need(tasks);
	while (readdir(tasks))
		n++;
	closedir(tasks);
	return n;
}

static void *use(void *arg)
{
	uint64_t state = (uintptr_t)&state;
	char *held[20] = {0};
	size_t n;

	for (int i = 0; i < 20000; i++) {
		char **p = &held[i * 7 % 20];

		if (*p) {
			need((*p)[0] == (char)(uintptr_t)p && (*p)[63] == (char)(uintptr_t)p);
			need(!pinalloc_pool_free(arg, *p));
		}
		n = 64 + rdma_random_size(&state, 20);
		*p = take(arg, n);
		memset(*p, (char)(uintptr_t)p, 64);
	}
	for (int i = 0; i < 20; i++)
		need(!pinalloc_pool_free(arg, held[i]));
	return NULL;
}

static void threads(void)
{
	struct pinalloc_pool_options options = {
		.bytes = 4 * BYTES, .threads = 4, .flags = PINALLOC_POOL_GROWS};
	unsigned before = n_threads();
	struct pinalloc_pool *pool = create(options);
	pthread_t users[4];

	need(n_threads() == before && !pinalloc_pool_destroy(pool));
	options.bytes = MIB;
	pool = create(options);
	for (int i = 0; i < 4; i++)
		need(!pthread_create(&users[i], NULL, use, pool));
	for (int i = 0; i < 4; i++)
		need(!pthread_join(users[i], NULL));
	need(!pinalloc_pool_destroy(pool));
}

/* --- forked: a child has the slices, and is refused all else ----------------------------- */

static _Atomic int stops;

static void *churn(void *pool)
{
	while (!stops)
		need(!pinalloc_pool_free(pool, take(pool, 64)));
	return NULL;
}

static void be_child(struct pinalloc_pool *pool, char *slice)
{
	struct pinalloc_pool_options options = {.bytes = MIB};

	alarm(60);
	need(!strcmp(slice, "parent"));
	strcpy(slice, "child");
	need(!pinalloc_pool_alloc(pool, 64, 0) && errno == ENOTSUP);
	need(!pinalloc_pool_create(&options, sizeof options) && errno == ENOTSUP);
	need(pinalloc_pool_free(pool, slice) == -ENOTSUP);
	need(pinalloc_pool_destroy(pool) == -ENOTSUP);
	_exit(0);
}

static void forked(void)
{
	struct pinalloc_pool *pool = create((struct pinalloc_pool_options){.bytes = MIB});
	char *slice = strcpy(take(pool, 64), "parent");
	pthread_t users[2];
	int status;

	for (int i = 0; i < 2; i++)
		need(!pthread_create(&users[i], NULL, churn, pool));
	for (int i = 0; i < 100; i++) {
		pid_t child = fork();

		if (!child)
			be_child(pool, slice);
		need(waitpid(child, &status, 0) == child && !status);
	}
	stops = 1;
	for (int i = 0; i < 2; i++)
		need(!pthread_join(users[i], NULL));
	need(!strcmp(slice, "parent") && !pinalloc_pool_free(pool, slice));
	need(!pinalloc_pool_destroy(pool));
}

/* --- callbacks: what on_segment may do, and what it must not, and survives --------------- */

static struct {
	struct pinalloc_pool *pool;
	int calls;
} called;

static int use_all(void *start, size_t length, int is_added, void *arg)
{
	struct pinalloc_pool_options options = {.bytes = MIB};
	struct pinalloc_key key;
	void *p = malloc(length), *q;
	struct ibv_mr *mr;

	need(p && ++called.calls < 100 && arg == &called);
	free(p);
	need(!pinalloc_lookup(rdma.pd, start, length, RDMA_ACCESS, &key));
	need((mr = ibv_reg_mr(rdma.pd, start, length, RDMA_ACCESS)));
	need(mr->lkey == key.lkey && !ibv_dereg_mr(mr));
	need(!pinalloc_pool_destroy(create(options)));
	if (!is_added || !called.pool)
		return 0;
	/* What has room is there; the pool does not grow for it again. */
	need((q = pinalloc_pool_alloc(called.pool, 64, 0)));
	need(!pinalloc_pool_free(called.pool, q));
	need(!pinalloc_pool_alloc(called.pool, 16 * MIB, 0) && errno == ENOMEM);
	return 0;
}

static void callbacks(void)
{
	struct pinalloc_pool_options options = {.bytes = 8 * MIB,
						.flags = PINALLOC_POOL_GROWS,
						.on_segment = use_all,
						.arg = &called};
	void *p, *q;

	rdma.pd = new_domain(rdma_open());
	called.pool = create(options);
	p = take(called.pool, 7 * MIB);
	q = take(called.pool, 7 * MIB);
	need(called.calls == 2);
	need(!pinalloc_pool_free(called.pool, p) && !pinalloc_pool_free(called.pool, q));
	p = called.pool;
	called.pool = NULL;
	need(!pinalloc_pool_destroy(p) && called.calls == 4);
}

/* --- freed: free() is told that a slice is no block; ends the process -------------------- */

static void freed(void)
{
	char *p = take(create((struct pinalloc_pool_options){.bytes = MIB}), 1000);

	free(p + 64);
}

/* --- gigantic: pages of 1 GiB, or one line ------------------------------------------------ */

static void gigantic(void)
{
	struct pinalloc_pool_options options = {.bytes = MIB,
						.page_size = PINALLOC_PAGES_GIGANTIC};
	struct pinalloc_pool *pool = create(options);
	char *p = take(pool, 1024 * MIB);

	need(!absent(p, 1024 * MIB) && !pinalloc_pool_free(pool, p));
	need(!pinalloc_pool_destroy(pool));
	options.page_size = PINALLOC_PAGES_HUGE;
	pool = create(options);
	take(pool, 2 * MIB);
}

int main(int argc, char **argv)
{
	static const struct rdma_case cases[] = {
		{"keys", keys},		{"segments", segments}, {"back", back},
		{"errors", errors},	{"threads", threads},	{"freed", freed},
		{"gigantic", gigantic}, {"forked", forked},	{"callbacks", callbacks}};

	if (!pinalloc_pool_create)
		return 3;
	rdma_run(cases, argc, argv);
	return 0;
}
