/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many objects of a kind an adapter, or a control group, has for a program that has
 * registered heap buffers and does not use them any more. Does not use the library's API.
 *
 *     rdma-objects KIND
 */
#include <config.h>

#include "test/programs/rdma.h"

#include <dlfcn.h>

#define BUFFERS 4
#define MOST	64

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

/* One after another, far from each other. */
static void use_heap(void)
{
	for (int i = 0; i < BUFFERS; i++) {
		char *block = malloc(32 * MIB);
		struct ibv_mr *mr;

		need(block);
		memset(block, 1, 32 * MIB);
		need((mr = ibv_reg_mr(pd, block, MIB, RDMA_ACCESS)));
		need(!ibv_dereg_mr(mr));
	}
}

static void *new_cq(void)
{
	return ibv_create_cq(context, 16, NULL, NULL, 0);
}

static void *new_cq_ex(void)
{
	struct ibv_cq_init_attr_ex attr = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};

	return ibv_create_cq_ex(context, &attr);
}

static void *new_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4,
			.max_recv_wr = 4,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};

	return ibv_create_qp(pd, &attr);
}

static void *new_srq(void)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4, .max_sge = 1}};

	return ibv_create_srq(pd, &attr);
}

static void *new_ah(void)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh.hop_limit = 64};

	need(!ibv_query_gid(context, 1, 0, &attr.grh.dgid));
	return ibv_create_ah(pd, &attr);
}

/* Of rdma-core 65 and later, whose headers may not be here: all its attributes are 0. */
static void *new_comp_cntr(void)
{
	void *(*create)(struct ibv_context * context, void *attributes);
	uint64_t attributes[64] = {0};

	need((*(void **)&create = dlsym(RTLD_DEFAULT, "ibv_create_comp_cntr")));
	return create(context, attributes);
}

static void *new_mw(void)
{
	return ibv_alloc_mw(pd, IBV_MW_TYPE_1);
}

static void *new_pd(void)
{
	return ibv_alloc_pd(context);
}

/* Of a mapping. */
static void *new_mr(void)
{
	return ibv_reg_mr(pd, rdma_map(MIB), MIB, RDMA_ACCESS);
}

/* The same one, again and again. */
static void *resized(void)
{
	int error = ibv_resize_cq(cq, 32);

	errno = error;
	return error ? NULL : cq;
}

static const struct {
	const char *kind;
	void *(*make)(void);
} kinds[] = {
	{"cq", new_cq}, {"cq_ex", new_cq_ex},
	{"qp", new_qp}, {"srq", new_srq},
	{"ah", new_ah}, {"mw", new_mw},
	{"pd", new_pd}, {"resize", resized},
	{"mr", new_mr}, {"comp_cntr", new_comp_cntr},
};

int main(int argc, char **argv)
{
	size_t kind = 0;
	unsigned n = 0;

	need(argc > 1);
	while (kind < sizeof kinds / sizeof *kinds && strcmp(kinds[kind].kind, argv[1]))
		kind++;
	need(kind < sizeof kinds / sizeof *kinds);
	context = rdma_open();
	need((pd = ibv_alloc_pd(context)));
	need((cq = new_cq()));
	use_heap();
	while (n < MOST && kinds[kind].make())
		n++;
	printf("%s %u: %s\n", argv[1], n, n < MOST ? strerror(errno) : "enough");
	return 0;
}
