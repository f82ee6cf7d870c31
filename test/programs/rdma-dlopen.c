/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that is not linked with libibverbs but finds its functions with dlvsym() in the
 * library it has opened, as NCCL does: the interposers are never called. Prints TAP.
 */
#include <config.h>

#include <infiniband/verbs.h>

static __typeof__(&ibv_get_device_list) get_device_list;
static __typeof__(&ibv_free_device_list) free_device_list;
static __typeof__(&ibv_open_device) open_device;
static __typeof__(&ibv_close_device) close_device;
static __typeof__(&ibv_alloc_pd) alloc_pd;
static __typeof__(&ibv_dealloc_pd) dealloc_pd;
static __typeof__(&ibv_create_cq) create_cq;
static __typeof__(&ibv_destroy_cq) destroy_cq;
static __typeof__(&ibv_create_qp) create_qp;
static __typeof__(&ibv_modify_qp) modify_qp;
static __typeof__(&ibv_destroy_qp) destroy_qp;
static __typeof__(&ibv_query_gid) query_gid;
static struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length, int access);
static __typeof__(&ibv_dereg_mr) dereg_mr;

/* rdma.h calls what was found. */
#define ibv_get_device_list  get_device_list
#define ibv_free_device_list free_device_list
#define ibv_open_device	     open_device
#define ibv_create_cq	     create_cq
#define ibv_destroy_cq	     destroy_cq
#define ibv_create_qp	     create_qp
#define ibv_modify_qp	     modify_qp
#define ibv_destroy_qp	     destroy_qp
#define ibv_query_gid	     query_gid

#include "test/programs/rdma.h"
#include "test/tap.h"

#include <dlfcn.h>

#define LENGTH 100000

static const struct {
	const char *name;
	void *to;
} symbols[] = {{"ibv_get_device_list", &get_device_list},
	       {"ibv_free_device_list", &free_device_list},
	       {"ibv_open_device", &open_device},
	       {"ibv_close_device", &close_device},
	       {"ibv_alloc_pd", &alloc_pd},
	       {"ibv_dealloc_pd", &dealloc_pd},
	       {"ibv_create_cq", &create_cq},
	       {"ibv_destroy_cq", &destroy_cq},
	       {"ibv_create_qp", &create_qp},
	       {"ibv_modify_qp", &modify_qp},
	       {"ibv_destroy_qp", &destroy_qp},
	       {"ibv_query_gid", &query_gid},
	       {"ibv_reg_mr", &reg_mr},
	       {"ibv_dereg_mr", &dereg_mr}};

static void find_symbols(void)
{
	void *handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);

	need(handle);
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
		need((*(void **)symbols[i].to = dlvsym(handle, symbols[i].name,
						       "IBVERBS_1.1")));
}

int main(void)
{
	struct ibv_context *context;
	struct ibv_mr *mrs[2];
	char *blocks[2];
	struct rdma rdma;
	struct ibv_pd *pd;

	find_symbols();
	context = rdma_open();
	pd = alloc_pd(context);
	rdma_connect(&rdma, pd);
	for (int i = 0; i < 2; i++) {
		need((blocks[i] = malloc(LENGTH)));
		need((mrs[i] = reg_mr(pd, blocks[i], LENGTH, RDMA_ACCESS)));
		ok(mrs[i]->addr == blocks[i] && mrs[i]->length == LENGTH && mrs[i]->pd == pd,
		   "ibv_reg_mr describes the request");
	}
	ok(rdma_sends(&rdma, blocks[0], mrs[0]->lkey, blocks[1], mrs[1]->rkey, LENGTH),
	   "the keys move the data");
	ok(!dereg_mr(mrs[0]) && !dereg_mr(mrs[1]), "they can be given up");
	rdma_disconnect(&rdma);
	ok(!dealloc_pd(pd), "the protection domain is free");
	ok(!close_device(context), "the device can be closed");
	return done_testing();
}
