/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The functions of pinalloc.h on a real device: whether the keys work, and for how long. Prints
 * TAP. Exit status 3: the functions are absent.
 *
 *     rdma-lookup CASE [PATH]
 */
#include "preload/pinalloc.h"
#include "test/beside.h"
#include "test/programs/rdma.h"
#include "test/tap.h"

#define WORKERS 4
#define WINDOW	(256 * KIB)

static struct ibv_pd *pds[2]; /* of two contexts */
static const char *report_path = "stderr";

static struct pinalloc_stats stats(void)
{
	struct pinalloc_stats now = {0};

	need(pinalloc_stats(&now, sizeof now) == (int)sizeof now);
	return now;
}

/* Until the registration thread has pinned so much, or ten seconds. */
static bool pins(uint64_t n_bytes)
{
	for (int i = 0; i < 1000 && stats().pinned < n_bytes; i++)
		usleep(10000);
	return stats().pinned >= n_bytes;
}

/*
 * Sends a window of one block to another with an RDMA write and fetches it back
 * with a read, all with looked-up keys. Returns whether it arrived right.
 */
static bool round_trip(struct rdma *rdma, size_t length, uint64_t *random)
{
	size_t n = length < WINDOW ? length : WINDOW;
	size_t at = rdma_random(random) % (length - n + 1);
	char *near = malloc(length), *far = malloc(length);
	struct pinalloc_key near_key, far_key;
	bool right;

	need(near && far);
	memset(far + at, 0, n);
	right = !pinalloc_lookup(rdma->pd, near, length, RDMA_ACCESS, &near_key) &&
		!pinalloc_lookup(rdma->pd, far, length, RDMA_ACCESS, &far_key) &&
		rdma_sends(rdma, near + at, near_key.lkey, far + at, far_key.rkey, n);
	memset(near + at, 0, n);
	right = right &&
		!rdma_read(rdma, near + at, near_key.lkey, far + at, far_key.rkey, n) &&
		!memcmp(near + at, far + at, n);
	free(near);
	free(far);
	return right;
}

static void *work(void *number)
{
	uint64_t random = (uintptr_t)number;
	struct rdma rdma[2];
	uintptr_t wrong = 0;

	for (int i = 0; i < 2; i++)
		rdma_connect(&rdma[i], pds[i]);
	for (int i = 0; i < 60; i++)
		wrong += !round_trip(&rdma[i % 2], rdma_random_size(&random, 23), &random);
	return (void *)wrong;
}

static void keys(void)
{
	for (int i = 0; i < 2; i++)
		need((pds[i] = ibv_alloc_pd(rdma_open())));
	ok(!in_threads(WORKERS, work),
	   "blocks of any size from %d threads, keys of two protection domains", WORKERS);
	ok(stats().pinned <= stats().mapped && stats().registered >= stats().pinned,
	   "what is registered in both is pinned once");
	ok(!stats().served, "no ibv_mr was made");
}

static void large(void)
{
	uint64_t random = 1;
	struct rdma rdma;

	rdma_connect(&rdma, ibv_alloc_pd(rdma_open()));
	for (size_t n = 16 * MIB; n <= 256 * MIB; n *= 4)
		ok(round_trip(&rdma, n, &random) && round_trip(&rdma, n - 1, &random),
		   "blocks of %zu MiB", n / MIB);
}

static bool absent(struct ibv_pd *pd, const void *addr, size_t length)
{
	struct pinalloc_key key = {.lkey = 1, .rkey = 2};

	return pinalloc_lookup(pd, addr, length, RDMA_ACCESS, &key) == -ENOENT &&
	       key.lkey == 1 && key.rkey == 2;
}

/* The most that can be looked up from there. */
static size_t reach(struct ibv_pd *pd, const char *from)
{
	size_t low = 1, high = (size_t)1 << 40;
	struct pinalloc_key key;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (pinalloc_lookup(pd, from, middle, RDMA_ACCESS, &key))
			high = middle;
		else
			low = middle;
	}
	return low;
}

static void outside(void)
{
	static char fixed[4096];
	char local[4096];
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	char *heap = malloc(4096);
	struct pinalloc_key key;

	need(pd && heap);
	ok(!pinalloc_lookup(pd, heap, 4096, RDMA_ACCESS, &key), "a block is found");
	ok(key.start <= (uintptr_t)heap && key.length >= 4096 &&
		   (uintptr_t)heap + 4096 - key.start <= key.length,
	   "with what its keys reach");
	ok(absent(pd, local, sizeof local), "the stack is refused");
	ok(absent(pd, fixed, sizeof fixed), "static memory is refused");
	ok(absent(pd, rdma_map(MIB), MIB), "mapped memory is refused");
	ok(absent(pd, (void *)(uintptr_t)outside, 1), "code is refused");
	ok(absent(pd, NULL, 1), "NULL is refused");
	ok(absent(pd, (void *)UINTPTR_MAX, 1), "the last address is refused");
	ok(absent(pd, heap, SIZE_MAX), "a length that wraps around is refused");
	free(heap);
}

/* Blocks for which the heap grows one after the other, and most often side by side. */
static void edge(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	const size_t n = 80 * MIB;
	struct pinalloc_key key;
	char *blocks[4], *end;
	int i;

	for (i = 0; i < 4; i++)
		need((blocks[i] = malloc(n)));
	for (i = 0; i < 3 && blocks[i] + n != blocks[i + 1]; i++)
		;
	need(i < 3);
	ok(!pinalloc_lookup(pd, blocks[i], n, RDMA_ACCESS, &key), "a block is found");
	ok(!pinalloc_lookup(pd, blocks[i], 2 * n, RDMA_ACCESS, &key),
	   "with the next one as well");
	ok(!pinalloc_lookup(pd, blocks[i] + n - 64, 128, RDMA_ACCESS, &key),
	   "and the border of both");
	end = blocks[i] + reach(pd, blocks[i]);
	ok(!pinalloc_lookup(pd, end - 64, 64, RDMA_ACCESS, &key), "up to the end of the heap");
	ok(absent(pd, end - 64, 65), "what reaches beyond is refused");
	ok(absent(pd, end, 64), "what lies beyond, too");
	for (i = 0; i < 4; i++)
		free(blocks[i]);
}

/* Whether looked-up keys move data. */
static bool works(struct ibv_pd *pd)
{
	uint64_t random = 7;
	struct rdma rdma;
	bool right;

	rdma_connect(&rdma, pd);
	right = round_trip(&rdma, 100000, &random);
	rdma_disconnect(&rdma);
	return right;
}

static void enable(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	struct pinalloc_stats before = stats();
	struct ibv_mr *mr;
	char *buffer = memset(malloc(64 * MIB), 1, 64 * MIB);
	char *volatile more; /* volatile: or the compiler leaves it out */

	need(pd);
	ok(!before.mr_created && !before.pinned, "nothing is registered at first");
	ok(pinalloc_disable(pd) == -ENOENT, "nothing can be disabled");
	ok(!pinalloc_enable(pd, RDMA_ACCESS), "enable");
	ok(pins(60 * MIB), "what is in memory is registered before anybody asks");
	more = malloc(300 * MIB);
	usleep(200000);
	ok(stats().mapped > 300 * MIB && stats().pinned < 80 * MIB,
	   "what is not is left alone");
	memset(more, 1, 300 * MIB);
	ok(pins(350 * MIB), "until it is");
	free(more);
	ok(works(pd), "the keys are good");
	need((mr = ibv_reg_mr(pd, buffer, MIB, RDMA_ACCESS)));
	ok(!pinalloc_disable(pd), "disable");
	ok(stats().pinned && stats().pinned < stats().mapped,
	   "only what an ibv_mr stands for is kept");
	need(!ibv_dereg_mr(mr));
	ok(!pinalloc_disable(pd) && !stats().pinned, "a second disable takes that, too");
	ok(stats().mr_created == stats().mr_destroyed, "nothing is registered any more");
	ok(pinalloc_disable(pd) == -ENOENT, "nothing can be disabled again");
	ok(works(pd), "a look-up registers again");
	ok(!pinalloc_disable(pd) && !pinalloc_enable(pd, RDMA_ACCESS) && pins(350 * MIB),
	   "enable after disable registers it again");
	free(buffer);
}

/* What a look-up of a block with these rights returns. */
static int can(struct ibv_pd *pd, unsigned access)
{
	char *block = malloc(MIB);
	struct pinalloc_key key;
	int error = pinalloc_lookup(pd, block, MIB, access, &key);

	free(block);
	return error;
}

static void rights(void)
{
	struct ibv_pd *relaxed = ibv_alloc_pd(rdma_open());
	struct ibv_pd *pd = ibv_alloc_pd(relaxed->context);

	ok(pinalloc_enable(pd, IBV_ACCESS_ON_DEMAND) == -EACCES,
	   "no memory region is on demand");
	ok(pinalloc_enable(pd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) == -EACCES,
	   "none has rights beyond PINALLOC_ACCESS");
	ok(!stats().mr_created, "nothing was registered");
	ok(!pinalloc_enable(pd, IBV_ACCESS_LOCAL_WRITE), "enable with few");
	ok(pinalloc_enable(pd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ) == -EEXIST,
	   "more cannot be added");
	ok(!pinalloc_enable(pd, IBV_ACCESS_LOCAL_WRITE), "the same can be asked for again");
	ok(can(pd, IBV_ACCESS_LOCAL_WRITE) == 0 && can(pd, 0) == 0,
	   "keys may have those rights, or fewer");
	ok(can(pd, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ) == -EACCES,
	   "none have more than was enabled");
	ok(can(relaxed, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) == -EACCES &&
		   can(relaxed, IBV_ACCESS_ON_DEMAND) == -EACCES,
	   "nor than PINALLOC_ACCESS");
	ok(can(relaxed, IBV_ACCESS_REMOTE_READ) == 0, "any within it can be looked up");
	ok(!pinalloc_enable(relaxed, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING),
	   "enable with relaxed ordering");
}

static void report(void)
{
	struct pinalloc_stats some;

	ok(works(ibv_alloc_pd(rdma_open())), "something to report");
	ok(!pinalloc_report(report_path), "a report at any time");
	ok(pinalloc_report("/nowhere/report.json") == -ENOENT,
	   "an impossible path is an error");
	memset(&some, 0xff, sizeof some);
	ok(pinalloc_stats(&some, 16) == 16 && some.live != UINT64_MAX &&
		   some.mapped != UINT64_MAX && some.growth_steps == UINT64_MAX,
	   "figures for a program built with a smaller structure");
	ok(stats().growth_steps && stats().mapped && stats().live &&
		   stats().live < stats().mapped,
	   "figures");
}

static void dealloc(void)
{
	struct ibv_context *context = rdma_open();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	char *buffer = malloc(MIB);
	struct rdma rdma;
	struct ibv_mr *mr;
	int failed = 0;

	need((mr = ibv_reg_mr(pd, buffer, MIB, RDMA_ACCESS)));
	ok(stats().served == 1 && works(pd), "an ibv_mr and keys of one protection domain");
	ok(ibv_dealloc_pd(pd) == EBUSY, "it is busy");
	ok(works(pd), "and works on");
	ok(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd), "without the ibv_mr it goes");
	ok(!stats().pinned, "nothing stays pinned");
	need((pd = ibv_alloc_pd(context)));
	ok(works(pd), "a new one has keys that are good");
	rdma_connect(&rdma, pd);
	ok(ibv_dealloc_pd(pd) == EBUSY, "with a queue pair it is busy");
	ok(works(pd) && stats().pinned, "and works on, registered again");
	rdma_disconnect(&rdma);
	ok(!ibv_dealloc_pd(pd), "without the queue pair it goes");
	for (int i = 0; i < 300; i++) {
		need((pd = ibv_alloc_pd(context)));
		failed += !(mr = ibv_reg_mr(pd, buffer, MIB, RDMA_ACCESS)) ||
			  ibv_dereg_mr(mr) || ibv_dealloc_pd(pd);
	}
	ok(!failed && stats().served == 301, "many, one after another");
	ok(!stats().pinned && stats().mr_created == stats().mr_destroyed,
	   "nothing stays pinned");
	ok(!ibv_close_device(context), "the device can be closed");
	free(buffer);
}

static void lazy(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	struct pinalloc_key key;
	char *large = malloc(100 * MIB);

	need(pd && large);
	ok(!pinalloc_lookup(pd, large, 100 * MIB, RDMA_ACCESS, &key), "a block is found");
	usleep(300000);
	ok(stats().growth_steps > 1 && stats().mr_created == 1,
	   "only its region is registered");
	ok(works(pd), "the keys are good");
	free(large);
}

static void off(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	struct pinalloc_key key;
	char *block = malloc(MIB);

	need(pd && block);
	ok(pinalloc_lookup(pd, block, MIB, RDMA_ACCESS, &key) == -ENOMEM, "no block has keys");
	ok(absent(pd, &key, sizeof key), "what is no block, even less");
	ok(pinalloc_enable(pd, IBV_ACCESS_LOCAL_WRITE) == -ENOMEM, "enable is refused");
	ok(pinalloc_disable(pd) == -ENOENT, "so is disable");
	ok(!stats().mr_created && !stats().pinned, "nothing was registered");
	free(block);
}

static const struct rdma_case cases[] = {
	{"keys", keys},	    {"large", large},	{"outside", outside}, {"edge", edge},
	{"enable", enable}, {"rights", rights}, {"dealloc", dealloc}, {"lazy", lazy},
	{"off", off},	    {"report", report}};

int main(int argc, char **argv)
{
	if (!pinalloc_lookup || !pinalloc_enable || !pinalloc_disable || !pinalloc_stats ||
	    !pinalloc_report)
		return 3;
	if (argc > 2)
		report_path = argv[2];
	rdma_run(cases, argc, argv);
	return done_testing();
}
