/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rdma-sparse: a program with a protection domain in use that allocates more than it touches.
 * Does not use the library's API: it must be able to do the same with the library as without.
 *
 *     rdma-sparse MIB [calloc] [scattered] [front] [reads] [register] [ahead]
 *
 * One block of MIB from malloc, or calloc; scattered writes to 200 pages of it, front to
 * all of its first sixteenth; reads looks at a byte of each 2 MiB; register has the
 * adapter read a page in its middle. Then it waits, as who registers ahead may take a
 * while, with ahead until most of that sixteenth is pinned, half a minute at most; says
 * what memory the process has, and looks at all again:
 *
 *     resident KIB pinned KIB
 *     block WRONG adapter STATUS small STATUS
 *
 * WRONG bytes are not what was written, or 0 from calloc; the adapter has read the page,
 * and a small buffer at the end.
 */
#include "test/programs/rdma.h"

#include <stdbool.h>
#include <unistd.h>

#define PAGE	  (4 * KIB)
#define SCATTERED 200
#define SECONDS	  3
#define AT_MOST	  30

static struct rdma rdma;
static char *small, *landing;
static struct ibv_mr *small_mr, *landing_mr;

/* Its first registration of heap memory: whoever registers ahead begins here. */
static void set_up(void)
{
	rdma_connect(&rdma, ibv_alloc_pd(rdma_open()));
	need((small = malloc(100 * KIB)) && (landing = malloc(100 * KIB)));
	need((small_mr = ibv_reg_mr(rdma.pd, small, 100 * KIB, RDMA_ACCESS)));
	need((landing_mr = ibv_reg_mr(rdma.pd, landing, 100 * KIB, RDMA_ACCESS)));
}

static const char *arrives(char *from, uint32_t lkey, size_t n_bytes)
{
	static uint64_t seed;

	rdma_fill(from, n_bytes, ++seed);
	if (rdma_write(&rdma, from, lkey, landing, landing_mr->rkey, n_bytes))
		return "error";
	return rdma_wrong(landing, n_bytes, seed) ? "wrong" : "right";
}

/* Place i of them, none of them in the page of the middle. */
static volatile char *scattered(char *block, size_t n_bytes, size_t i)
{
	return block + i * (n_bytes / SCATTERED / PAGE * PAGE);
}

static size_t wrong_scattered(char *block, size_t n_bytes, char expected)
{
	size_t wrong = 0;

	for (size_t i = 0; i < SCATTERED; i++)
		wrong += *scattered(block, n_bytes, i) != expected;
	return wrong;
}

static size_t wrong_front(const char *block, size_t n_bytes)
{
	size_t wrong = 0;

	for (size_t at = 0; at < n_bytes; at++)
		wrong += block[at] != 1;
	return wrong;
}

static size_t wrong_reads(const volatile char *block, size_t n_bytes)
{
	size_t wrong = 0;

	for (size_t at = MIB; at < n_bytes; at += 2 * MIB)
		wrong += block[at] != 0;
	return wrong;
}

struct memory {
	unsigned long resident, pinned; /* KiB */
};

static struct memory memory_now(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	struct memory now = {0, 0};
	char line[256];

	need(file);
	while (fgets(line, sizeof line, file)) {
		sscanf(line, "VmRSS: %lu", &now.resident);
		sscanf(line, "VmPin: %lu", &now.pinned);
	}
	fclose(file);
	return now;
}

static void await(size_t n_pinned)
{
	sleep(SECONDS);
	for (int i = SECONDS; i < AT_MOST && memory_now().pinned < n_pinned / KIB; i++)
		sleep(1);
}

static bool asked(char **words, const char *word)
{
	while (*words && strcmp(*words, word) != 0)
		words++;
	return *words;
}

/* What is asked for of the block, other than its registration. */
static size_t use(char *block, size_t n_bytes, char **words)
{
	for (size_t i = 0; asked(words, "scattered") && i < SCATTERED; i++)
		*scattered(block, n_bytes, i) = 1;
	if (asked(words, "front"))
		memset(block, 1, n_bytes / 16);
	return asked(words, "reads") ? wrong_reads(block, n_bytes) : 0;
}

/* The bytes beside the scattered ones are 0 where calloc has said so. */
static size_t inspect(char *block, size_t n_bytes, char **words)
{
	size_t wrong = 0;

	if (asked(words, "scattered"))
		wrong += wrong_scattered(block, n_bytes, 1);
	if (asked(words, "calloc"))
		wrong += wrong_scattered(block + 1, n_bytes, 0);
	if (asked(words, "front"))
		wrong += wrong_front(block, n_bytes / 16);
	return wrong;
}

int main(int argc, char **argv)
{
	const char *adapter = "unasked";
	size_t n_bytes, wrong;
	struct memory now;
	struct ibv_mr *mr;
	char *block;

	need(argc > 1 && (n_bytes = strtoul(argv[1], NULL, 0) * MIB));
	set_up();
	block = asked(argv, "calloc") ? calloc(n_bytes, 1) : malloc(n_bytes);
	if (!block) {
		printf("%s MiB: %s\n", argv[1], strerror(errno));
		return 0;
	}
	wrong = use(block, n_bytes, argv);
	if (asked(argv, "register")) { /* It stays so. */
		mr = ibv_reg_mr(rdma.pd, block + n_bytes / 2, PAGE, RDMA_ACCESS);
		adapter = mr ? arrives(block + n_bytes / 2, mr->lkey, PAGE) : strerror(errno);
	}
	await(asked(argv, "ahead") ? n_bytes / 16 * 7 / 8 : 0);
	now = memory_now();
	printf("resident %lu pinned %lu\n", now.resident, now.pinned);
	wrong += inspect(block, n_bytes, argv);
	printf("block %zu adapter %s small %s\n", wrong, adapter,
	       arrives(small, small_mr->lkey, 100 * KIB));
	return 0;
}
