/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Creates and destroys protection domains in every order a program may choose. Does not use the
 * library's API, and passes without it. Prints TAP.
 *
 *     rdma-domains CASE
 */
#include <config.h>

#include "test/programs/rdma.h"
#include "test/tap.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#define LENGTH 100000
#define ROUNDS 200

/* A protection domain, and two blocks of the heap that are registered in it. */
struct party {
	struct rdma rdma;
	struct ibv_pd *pd;
	char *blocks[2];
	struct ibv_mr *mrs[2];
};

static void register_blocks(struct party *party)
{
	for (int i = 0; i < 2; i++) {
		need((party->blocks[i] = malloc(LENGTH)));
		need((party->mrs[i] = ibv_reg_mr(party->pd, party->blocks[i], LENGTH,
						 RDMA_ACCESS)));
		need(party->mrs[i]->pd == party->pd);
	}
}

static void set_up(struct party *party, struct ibv_context *context)
{
	need((party->pd = ibv_alloc_pd(context)));
	register_blocks(party);
	rdma_connect(&party->rdma, party->pd);
}

static bool give_up(struct party *party)
{
	int failed = 0;

	for (int i = 0; i < 2; i++) {
		failed += ibv_dereg_mr(party->mrs[i]) != 0;
		free(party->blocks[i]);
	}
	return !failed;
}

static bool end(struct party *party)
{
	rdma_disconnect(&party->rdma);
	return give_up(party) && !ibv_dealloc_pd(party->pd);
}

/* The status of a write with keys of one party on the queue pair of another; -1: wrong. */
static int sends(struct party *queue, const struct party *keys)
{
	static uint64_t seed;
	int status;

	rdma_fill(keys->blocks[0], LENGTH, ++seed);
	status = rdma_write(&queue->rdma, keys->blocks[0], keys->mrs[0]->lkey, keys->blocks[1],
			    keys->mrs[1]->rkey, LENGTH);
	return status ? status : rdma_wrong(keys->blocks[1], LENGTH, seed) ? -1 : 0;
}

/* Deregistering when another domain is gone, and when another device is closed. */
static void others(void)
{
	struct ibv_context *contexts[3];
	struct party parties[3];

	for (int i = 0; i < 3; i++) {
		contexts[i] = rdma_open();
		set_up(&parties[i], contexts[i ? i - 1 : 0]);
	}
	ok(end(&parties[0]), "the first domain goes");
	ok(!sends(&parties[1], &parties[1]) && !sends(&parties[2], &parties[2]),
	   "the keys of the others move the data");
	rdma_disconnect(&parties[2].rdma);
	ok(!ibv_close_device(contexts[1]), "a device is closed with all there was on it");
	ok(!sends(&parties[1], &parties[1]), "the keys of the last one move the data");
	ok(end(&parties[1]), "its registrations can be given up, and it goes");
}

/* Closing a device takes with it what nobody has given up. */
static void closed(void)
{
	struct ibv_context *context;
	struct party party;
	int failed = 0;

	for (int i = 0; i < 20; i++) {
		context = rdma_open();
		set_up(&party, context);
		failed += sends(&party, &party) != 0;
		rdma_disconnect(&party.rdma);
		failed += ibv_close_device(context) != 0;
		free(party.blocks[0]);
		free(party.blocks[1]);
	}
	ok(!failed, "each device opened anew has keys that are good");
	context = rdma_open();
	set_up(&party, context);
	ok(!sends(&party, &party) && end(&party) && !ibv_close_device(context),
	   "and can be left in good order");
}

static volatile bool has_ended;

static void *grow(void *unused)
{
	void *kept[64] = {NULL};

	for (unsigned i = 0; !has_ended; i++) {
		size_t size = (1 + i % 7) * MIB / 4;

		free(kept[i % 64]);
		need((kept[i % 64] = malloc(size)));
		memset(kept[i % 64], 1, size);
		usleep(2000);
	}
	return unused;
}

/* The same while the heap grows; every other time libibverbs' own function does it. */
static void growing(void)
{
	int (*own_close)(struct ibv_context * context);
	struct ibv_context *context;
	struct party party;
	pthread_t thread;
	int failed = 0;

	need((*(void **)&own_close = dlsym(dlopen("libibverbs.so.1", RTLD_NOW),
					   "ibv_close_device")));
	need(!pthread_create(&thread, NULL, grow, NULL));
	for (int i = 0; i < 60; i++) {
		context = rdma_open();
		need((party.pd = ibv_alloc_pd(context)));
		for (int k = 0; k < 3; k++)
			register_blocks(&party);
		usleep(i * 100);
		failed += (i % 2 ? own_close : ibv_close_device)(context) != 0;
	}
	has_ended = true;
	need(!pthread_join(thread, NULL));
	ok(!failed, "devices are closed while more is registered");
}

/* Two at a time, so that the next one may get the address of either. */
static void reused(void)
{
	struct ibv_context *context = rdma_open();
	const struct ibv_pd *seen[ROUNDS];
	int failed = 0, again = 0;
	struct party old, new;

	set_up(&old, context);
	for (int i = 0; i < ROUNDS; i++) {
		bool known = false;

		set_up(&new, context);
		for (int k = 0; k < i; k++)
			known |= seen[k] == new.pd;
		again += known;
		seen[i] = new.pd;
		failed += sends(&new, &new) || sends(&old, &old);
		if (i % 10 == 0)
			failed += sends(&new, &old) <= 0 || !end(&new);
		else
			failed += !end(&old), old = new;
	}
	ok(again > ROUNDS / 2, "%d domains of %d have the address of an earlier one", again,
	   ROUNDS);
	ok(!failed, "the keys are good in the right one, and in no other");
	ok(end(&old) && !ibv_close_device(context), "the last one goes");
}

static void busy(void)
{
	struct ibv_context *context = rdma_open();
	struct party party;

	set_up(&party, context);
	ok(ibv_dealloc_pd(party.pd) == EBUSY, "with a queue pair and registrations it is busy");
	ok(!sends(&party, &party), "and works on");
	rdma_disconnect(&party.rdma);
	ok(ibv_dealloc_pd(party.pd) == EBUSY, "with registrations it is busy");
	rdma_connect(&party.rdma, party.pd);
	ok(!sends(&party, &party), "and works on");
	rdma_disconnect(&party.rdma);
	ok(give_up(&party) && !ibv_dealloc_pd(party.pd), "without them it goes");
	ok(!ibv_close_device(context), "the device can be closed");
}

static void say(const char *what, const void *got)
{
	printf("# %s: %s\n", what, got ? "done" : strerror(errno));
}

/* What the provider cannot, it says; what it can, must hold. */
static void imported(void)
{
	struct ibv_context *context = rdma_open(), *again;
	struct ibv_pd *pd;
	struct party party;

	set_up(&party, context);
	errno = 0;
	again = ibv_import_device(dup(context->cmd_fd));
	say("ibv_import_device", again);
	errno = 0;
	pd = ibv_import_pd(again ? again : context, party.pd->handle);
	say("ibv_import_pd", pd);
	if (pd) {
		struct party guest = {.pd = pd};

		register_blocks(&guest);
		rdma_connect(&guest.rdma, pd);
		ok(!sends(&guest, &guest), "keys of an imported domain move the data");
		rdma_disconnect(&guest.rdma);
		ok(give_up(&guest), "what is registered in it can be given up");
		ibv_unimport_pd(pd);
	}
	ok(!sends(&party, &party), "the domain works on");
	ok(end(&party), "it can be given up");
	if (again)
		ok(!ibv_close_device(again), "so can the imported device");
	ok(!ibv_close_device(context), "so can the device");
}

static const struct rdma_case cases[] = {{"others", others},   {"closed", closed},
					 {"growing", growing}, {"reused", reused},
					 {"busy", busy},       {"imported", imported}};

int main(int argc, char **argv)
{
	rdma_run(cases, argc, argv);
	return done_testing();
}
