/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows of both types on a block of the heap. Binding needs a right of its own on the
 * memory region. (Doing so without it is not tested: Linux 6.1's soft-RoCE then miscounts
 * references to a queue pair.) Prints TAP.
 */
#include "test/programs/rdma.h"
#include "test/tap.h"

#define LENGTH 100000

static struct rdma rdma;
static char *target, *source;
static struct ibv_mr *source_mr;

/* Whether the bind succeeds and the window accepts data, with its own key. */
static bool lets_in(uint32_t rkey)
{
	return rdma_wait(&rdma) == IBV_WC_SUCCESS &&
	       rdma_sends(&rdma, source, source_mr->lkey, target, rkey, LENGTH);
}

static struct ibv_mw_bind_info whole(struct ibv_mr *mr)
{
	return (struct ibv_mw_bind_info){
		.mr = mr,
		.addr = (uintptr_t)target,
		.length = LENGTH,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
}

static void type_1(struct ibv_mr *mr)
{
	struct ibv_mw *mw = ibv_alloc_mw(rdma.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED, .bind_info = whole(mr)};

	need(mw);
	ok(!ibv_bind_mw(rdma.qp, mw, &bind) && lets_in(mw->rkey), "type 1");
	ok(!ibv_dealloc_mw(mw), "it can be given up");
}

static void type_2(struct ibv_mr *mr)
{
	struct ibv_mw *mw = ibv_alloc_mw(rdma.pd, IBV_MW_TYPE_2);
	struct ibv_send_wr *bad, wr = {
					 .opcode = IBV_WR_BIND_MW,
					 .send_flags = IBV_SEND_SIGNALED,
				 };

	need(mw);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = whole(mr);
	ok(!ibv_post_send(rdma.qp, &wr, &bad) && lets_in(wr.bind_mw.rkey), "type 2");
	ok(!ibv_dealloc_mw(mw), "it can be given up");
}

int main(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(rdma_open());
	struct ibv_mr *mr;

	rdma_connect(&rdma, pd);
	need((target = malloc(LENGTH)) && (source = malloc(LENGTH)));
	need((source_mr = ibv_reg_mr(pd, source, LENGTH, IBV_ACCESS_LOCAL_WRITE)));
	need((mr = ibv_reg_mr(pd, target, LENGTH,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)));
	type_1(mr);
	type_2(mr);
	ok(!ibv_dereg_mr(mr) && !ibv_dereg_mr(source_mr), "all can be given up");
	return done_testing();
}
