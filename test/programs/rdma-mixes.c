/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that links to some verbs and finds others in libibverbs with dlsym(): every mix of
 * the two must work. Does not use the library's API, and passes without it. Prints TAP.
 *
 *     rdma-mixes local | default | deep    how libibverbs is opened, and looked in
 *     rdma-mixes old                       found are the verbs of the first ABI
 *     rdma-mixes closed                    found is what closes the device, with all there is
 * on it
 */
#include <config.h>

#include "test/programs/rdma.h"
#include "test/tap.h"

#include <dlfcn.h>
#include <string.h>

/* Macros that choose between the two at compile time. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define LENGTH 100000
#define BLOCKS 4

/* Each linked to or found, as the bits of a number say. */
struct verbs {
	__typeof__(&ibv_open_device) open_device;
	__typeof__(&ibv_alloc_pd) alloc_pd;
	__typeof__(&ibv_reg_mr) reg_mr;
	__typeof__(&ibv_reg_mr_iova) reg_mr_iova;
	__typeof__(&ibv_rereg_mr) rereg_mr;
	__typeof__(&ibv_dereg_mr) dereg_mr;
	__typeof__(&ibv_dealloc_pd) dealloc_pd;
	__typeof__(&ibv_close_device) close_device;
};

#define VERBS (sizeof(struct verbs) / sizeof(void *))
#define MIXES (1u << VERBS)

static const struct verbs linked = {ibv_open_device, ibv_alloc_pd,    ibv_reg_mr,
				    ibv_reg_mr_iova, ibv_rereg_mr,    ibv_dereg_mr,
				    ibv_dealloc_pd,  ibv_close_device};

static const struct {
	const char *name, *version;
} symbols[VERBS] = {{"ibv_open_device", "IBVERBS_1.1"}, {"ibv_alloc_pd", "IBVERBS_1.1"},
		    {"ibv_reg_mr", "IBVERBS_1.1"},	{"ibv_reg_mr_iova", "IBVERBS_1.7"},
		    {"ibv_rereg_mr", "IBVERBS_1.1"},	{"ibv_dereg_mr", "IBVERBS_1.1"},
		    {"ibv_dealloc_pd", "IBVERBS_1.1"},	{"ibv_close_device", "IBVERBS_1.1"}};

static struct verbs found;

/* Libibverbs is opened in every way, and asked for a version or for the newest. */
static void find(unsigned way)
{
	static const int flags[] = {RTLD_LOCAL, RTLD_NOLOAD, RTLD_DEEPBIND};
	void *handle = dlopen("libibverbs.so.1", RTLD_NOW | flags[way % 3]);
	void **at = (void **)&found;

	need(handle);
	for (size_t i = 0; i < VERBS; i++)
		need((at[i] = way % 3 ? dlsym(handle, symbols[i].name)
				      : dlvsym(handle, symbols[i].name, symbols[i].version)));
}

static struct verbs mix(unsigned bits)
{
	struct verbs verbs;

	for (size_t i = 0; i < VERBS; i++)
		((void **)&verbs)[i] = ((void *const *)(bits >> i & 1 ? &found : &linked))[i];
	return verbs;
}

/* Registered in one protection domain: three of the heap, and one of memory of its own. */
struct party {
	struct verbs verbs;
	struct ibv_context *context;
	struct rdma rdma;
	char *blocks[BLOCKS];
	struct ibv_mr *mrs[BLOCKS];
};

static struct ibv_context *open_first(const struct verbs *verbs)
{
	struct ibv_device **devices;
	struct ibv_context *context;

	need((devices = ibv_get_device_list(NULL)) && devices[0]);
	need((context = verbs->open_device(devices[0])));
	ibv_free_device_list(devices);
	return context;
}

static struct ibv_mr *reg(const struct party *party, int i)
{
	char *p = party->blocks[i];

	if (i % 2)
		return party->verbs.reg_mr_iova(party->rdma.pd, p, LENGTH, (uintptr_t)p,
						RDMA_ACCESS);
	return party->verbs.reg_mr(party->rdma.pd, p, LENGTH, RDMA_ACCESS);
}

static void set_up(struct party *party)
{
	party->context = open_first(&party->verbs);
	rdma_connect(&party->rdma, party->verbs.alloc_pd(party->context));
	for (int i = 0; i < BLOCKS; i++) {
		need((party->blocks[i] = i == BLOCKS - 1 ? rdma_map(LENGTH) : malloc(LENGTH)));
		need((party->mrs[i] = reg(party, i)));
	}
}

/* From each block to the next, with the keys it has. */
static bool sends(struct party *party)
{
	int failed = 0;

	for (int i = 0; i < BLOCKS; i++) {
		const struct ibv_mr *from = party->mrs[i], *to = party->mrs[(i + 1) % BLOCKS];

		failed += !rdma_sends(&party->rdma, from->addr, from->lkey, to->addr, to->rkey,
				      LENGTH);
		failed += from->pd != party->rdma.pd || from->context != party->context;
	}
	return !failed;
}

/* To another block, or not: the device itself cannot. */
static bool moves(struct party *party)
{
	char *old = party->blocks[0], *new = malloc(LENGTH);
	int error = party->verbs.rereg_mr(party->mrs[0], IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
					  new, LENGTH, 0);

	if (!error)
		party->blocks[0] = new;
	free(error ? new : old);
	return party->mrs[0]->addr == party->blocks[0] && sends(party);
}

static bool give_up(struct party *party)
{
	int failed = 0;

	for (int i = 0; i < BLOCKS; i++)
		failed += party->verbs.dereg_mr(party->mrs[i]) != 0;
	rdma_disconnect(&party->rdma);
	failed += party->verbs.dealloc_pd(party->rdma.pd) != 0;
	failed += party->verbs.close_device(party->context) != 0;
	return !failed;
}

static void free_blocks(struct party *party)
{
	for (int i = 0; i < BLOCKS - 1; i++)
		free(party->blocks[i]);
	munmap(party->blocks[BLOCKS - 1], LENGTH);
}

static void all(void)
{
	for (unsigned bits = 0; bits < MIXES; bits++) {
		struct party party;
		bool sent, moved, gone;

		find(bits);
		party.verbs = mix(bits);
		set_up(&party);
		sent = sends(&party);
		moved = moves(&party);
		gone = give_up(&party);
		ok(sent && moved && gone, "found: 0x%02x: data %d, moved %d, given up %d", bits,
		   sent, moved, gone);
		free_blocks(&party);
	}
}

static void closed(void)
{
	int failed = 0;

	find(0);
	for (int i = 0; i < 20; i++) {
		struct party party = {.verbs = linked};

		set_up(&party);
		failed += !sends(&party);
		rdma_disconnect(&party.rdma);
		failed += found.close_device(party.context) != 0;
		free_blocks(&party);
	}
	ok(!failed, "each device opened anew has keys that are good");
}

/* The structures are others there, and known to libibverbs only. */
static void *call(const char *name, void *argument)
{
	void *(*verb)(void *) = (void *(*)(void *))(uintptr_t)dlvsym(RTLD_DEFAULT, name,
								     "IBVERBS_1.0");

	need(verb);
	return verb(argument);
}

static void *register_old(void *pd, void *addr)
{
	void *(*verb)(void *, void *, size_t, int) = (void *(*)(void *, void *, size_t, int))(
		uintptr_t)dlvsym(RTLD_DEFAULT, "ibv_reg_mr", "IBVERBS_1.0");

	need(verb);
	return verb(pd, addr, LENGTH, RDMA_ACCESS);
}

static void old(void)
{
	struct party party = {.verbs = linked};
	void **devices, *context, *pd, *mrs[2];
	char *blocks[2];

	set_up(&party);
	need((devices = call("ibv_get_device_list", NULL)) && devices[0]);
	need((context = call("ibv_open_device", devices[0])));
	need((pd = call("ibv_alloc_pd", context)));
	for (int i = 0; i < 2; i++) {
		need((blocks[i] = malloc(LENGTH)));
		need((mrs[i] = register_old(pd, blocks[i])));
	}
	ok(sends(&party), "the others' keys are good");
	ok(!call("ibv_dereg_mr", mrs[0]) && !call("ibv_dereg_mr", mrs[1]),
	   "registrations are given up");
	ok(!call("ibv_dealloc_pd", pd) && !call("ibv_close_device", context),
	   "and domain and device");
	ok(sends(&party) && give_up(&party), "which leaves the others alone");
	free(blocks[0]);
	free(blocks[1]);
	free_blocks(&party);
}

int main(int argc, char **argv)
{
	static const struct rdma_case cases[] = {
		{"all", all}, {"old", old}, {"closed", closed}};

	rdma_run(cases, argc, argv);
	return done_testing();
}
