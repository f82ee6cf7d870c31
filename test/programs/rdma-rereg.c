/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ibv_rereg_mr() of an ibv_mr that the library made, which soft-RoCE itself does not support.
 * After every step the ibv_mr must have the requested values and its keys must transfer the
 * data; a step that is refused must not change it. Prints TAP.
 */
#include "test/programs/rdma.h"
#include "test/tap.h"

#define LENGTH 100000

static struct ibv_pd *pds[2];
static struct rdma rdmas[2];
static struct ibv_mr *peers[2]; /* mapped memory the data goes to and comes from */
static char *heap[2], *mapped;

static void set_up(void)
{
	pds[0] = ibv_alloc_pd(rdma_open());
	pds[1] = ibv_alloc_pd(pds[0]->context);
	for (int i = 0; i < 2; i++) {
		need((heap[i] = malloc(LENGTH)));
		rdma_connect(&rdmas[i], pds[i]);
		need((peers[i] = ibv_reg_mr(pds[i], rdma_map(LENGTH), LENGTH, RDMA_ACCESS)));
	}
	mapped = rdma_map(LENGTH);
}

/* Whether it stands for that memory in that domain; data goes there and back. */
static bool is(const struct ibv_mr *mr, int domain, char *at, size_t n)
{
	struct rdma *rdma = &rdmas[domain];
	struct ibv_mr *peer = peers[domain];
	bool right;

	if (mr->addr != at || mr->length != n || mr->pd != pds[domain])
		return false;
	right = rdma_sends(rdma, at, mr->lkey, peer->addr, peer->rkey, n);
	memset(at, 0, n);
	return right && rdma_sends(rdma, peer->addr, peer->lkey, at, mr->rkey, n);
}

static int translate(struct ibv_mr *mr, char *at, size_t n)
{
	return ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, at, n, 0);
}

static void refusals(struct ibv_mr *mr)
{
	char *hole = rdma_map(LENGTH);

	need(!munmap(hole, LENGTH));
	errno = 0;
	ok(ibv_rereg_mr(mr, 1 << 10, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT &&
		   errno == EINVAL,
	   "unknown flags are refused");
	ok(translate(mr, heap[1], 0) == IBV_REREG_MR_ERR_INPUT, "no length is refused");
	ok(translate(mr, NULL, 1) == IBV_REREG_MR_ERR_INPUT, "no address is refused");
	ok(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, heap[1], 1, RDMA_ACCESS) ==
		   IBV_REREG_MR_ERR_INPUT,
	   "rights without their flag are refused");
	ok(is(mr, 0, heap[0], LENGTH), "after which it is as it was");
	ok(translate(mr, hole, LENGTH) == IBV_REREG_MR_ERR_CMD, "no memory is an error");
	ok(is(mr, 0, heap[0], LENGTH), "after which it is as it was");
}

static void changes(struct ibv_mr *mr)
{
	const int both = IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION;

	ok(!translate(mr, heap[1], LENGTH - 1) && is(mr, 0, heap[1], LENGTH - 1),
	   "to another block");
	ok(!translate(mr, mapped, LENGTH) && is(mr, 0, mapped, LENGTH), "to mapped memory");
	ok(!translate(mr, mapped + 5, 77) && is(mr, 0, mapped + 5, 77), "to a part of it");
	ok(translate(mr, mapped, 0) && is(mr, 0, mapped + 5, 77), "a refusal changes nothing");
	ok(!translate(mr, heap[0], LENGTH) && is(mr, 0, heap[0], LENGTH), "back to a block");
	ok(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			 RDMA_ACCESS | IBV_ACCESS_MW_BIND) &&
		   is(mr, 0, heap[0], LENGTH),
	   "to rights that no region has");
	ok(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RDMA_ACCESS) &&
		   is(mr, 0, heap[0], LENGTH),
	   "back to rights that all have");
	ok(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pds[1], NULL, 0, 0) &&
		   is(mr, 1, heap[0], LENGTH),
	   "to another protection domain");
	ok(!ibv_rereg_mr(mr, both, pds[0], heap[1], LENGTH, 0) && is(mr, 0, heap[1], LENGTH),
	   "back to the first and another block");
}

int main(void)
{
	struct ibv_mr *mr;

	set_up();
	need((mr = ibv_reg_mr(pds[0], heap[0], LENGTH, RDMA_ACCESS)));
	ok(is(mr, 0, heap[0], LENGTH), "a block of the heap");
	refusals(mr);
	changes(mr);
	ok(!ibv_dereg_mr(mr), "it can be given up");
	for (int i = 0; i < 2; i++) {
		need(!ibv_dereg_mr(peers[i]));
		rdma_disconnect(&rdmas[i]);
		ok(!ibv_dealloc_pd(pds[i]), "protection domain %d is free", i);
	}
	return done_testing();
}
