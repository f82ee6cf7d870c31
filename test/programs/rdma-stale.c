/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A message-passing library with a broken registration cache: buffers are registered when they
 * are first seen and found again by address and length; the cache does not learn of free().
 * Every round allocates a buffer, sends its contents to a landing zone, receives others into
 * it, and compares both.
 *
 *     rdma-stale ROUNDS
 */
#include "rdma.h"

/* Powers of two from 4 KiB to 64 MiB: few sizes, so that one comes back soon. */
#define MAGNITUDES 15
#define PIECE	   (256 * KIB)

struct cached {
	void *addr;
	size_t length;
	struct ibv_mr *mr;
	struct wrong_memory memory; /* when it was registered */
};

static struct cached cache[4096];
static size_t cached, hits;

static struct cached *naive_cache(struct ibv_pd *pd, void *addr, size_t length)
{
	for (size_t i = 0; i < cached; i++) {
		if (cache[i].addr == addr && cache[i].length == length) {
			hits++;
			return &cache[i];
		}
	}
	need(cached < sizeof cache / sizeof *cache);
	cache[cached] = (struct cached){.addr = addr,
					.length = length,
					.mr = ibv_reg_mr(pd, addr, length, RDMA_ACCESS)};
	need(cache[cached].mr);
	wrong_note(&cache[cached].memory, "a heap block", addr, length);
	return &cache[cached++];
}

struct landing {
	char *at; /* mapped once and never moved */
	struct ibv_mr *mr;
	struct wrong_memory memory; /* when it was registered */
};

static struct landing make_landing(struct ibv_pd *pd)
{
	struct landing landing;

	landing.at = rdma_map(PIECE);
	need((landing.mr = ibv_reg_mr(pd, landing.at, PIECE, RDMA_ACCESS)));
	wrong_note(&landing.memory, "the landing zone", landing.at, PIECE);
	return landing;
}

/* A side of a message: where in which memory. */
struct end {
	char *at;
	const struct ibv_mr *mr;
	const struct wrong_memory *memory;
};

static void complain(const struct wrong *wrong, const struct end *from, const struct end *to)
{
	char who[WRONG_LINE];

	snprintf(who, sizeof who, "rdma-stale: %zu hits, lkey %#x, rkey %#x, from %p to %p",
		 hits, from->mr->lkey, to->mr->rkey, (void *)from->at, (void *)to->at);
	wrong_say(who, wrong, to->memory, (size_t)(to->at - to->memory->at) + 8 * wrong->first);
}

/* Returns how many words arrived wrong. */
static size_t message(struct rdma *rdma, const struct end *from, const struct end *to, size_t n,
		      uint64_t seed)
{
	struct wrong wrong;

	rdma_fill(from->at, n, seed);
	need(!rdma_write(rdma, from->at, from->mr->lkey, to->at, to->mr->rkey, n));
	if (wrong_find(&wrong, to->at, n, seed))
		complain(&wrong, from, to);
	return wrong.count;
}

/*
 * Moves the buffer out and in, and adds up the words that arrived wrong. Of a
 * large one only every eighth piece goes, another eighth each round: soft-RoCE is
 * slow, and a stale registration is stale as a whole.
 */
static void exchange(struct rdma *rdma, struct landing *landing, char *buffer, size_t length,
		     uint64_t seed, size_t wrong[2])
{
	const struct cached *entry = naive_cache(rdma->pd, buffer, length);
	size_t stride = length > 8 * PIECE ? 8 : 1;

	for (size_t at = seed % stride * PIECE; at < length; at += stride * PIECE) {
		size_t n = length - at < PIECE ? length - at : PIECE;
		const struct end mine = {buffer + at, entry->mr, &entry->memory};
		const struct end zone = {landing->at, landing->mr, &landing->memory};

		wrong[0] += message(rdma, &mine, &zone, n, seed);
		wrong[1] += message(rdma, &zone, &mine, n, ~seed);
	}
}

int main(int argc, char **argv)
{
	unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 100;
	unsigned bad_sent = 0, bad_received = 0;
	struct landing landing;
	uint64_t random = 1;
	struct rdma rdma;

	rdma_connect(&rdma, ibv_alloc_pd(rdma_open()));
	landing = make_landing(rdma.pd);
	for (unsigned round = 0; round < rounds; round++) {
		size_t length = 4 * KIB << rdma_random(&random) % MAGNITUDES;
		char *buffer = malloc(length);
		size_t wrong[2] = {0, 0};

		need(buffer);
		exchange(&rdma, &landing, buffer, length, round, wrong);
		free(buffer);
		bad_sent += wrong[0] != 0;
		bad_received += wrong[1] != 0;
	}
	printf("rounds %u hits %zu wrong-sent %u wrong-received %u\n", rounds, hits, bad_sent,
	       bad_received);
	return 0;
}
