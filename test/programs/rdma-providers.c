// SPDX-License-Identifier: BSD-2-Clause
/*
 * What programs do with queue pairs, domains and verbs of a provider's own, over
 * test/lab/providers. Prints a line for each case, for comparison with another run; each key
 * that it gets is asked.
 *
 *   usage: rdma-providers DEVICE plain|dlsym|fork|direct
 *     dlsym     finds verbs as Python and NCCL do
 *     fork      after ibv_fork_init
 *     direct    opens the device with mlx5dv_open_device
 * pinalloc(7) says what differs when a memory region of the heap is imported: none is here.
 */
#include <dlfcn.h>
#include <infiniband/efadv.h>
#include <infiniband/mlx5dv.h>
#include <stdarg.h>
#include <sys/mman.h>

#include "oracle.h"

#define PAGE   ((size_t)4096)
#define RIGHTS RDMA_ACCESS

static int (*dereg)(struct ibv_mr *) = ibv_dereg_mr;
static int (*dealloc)(struct ibv_pd *) = ibv_dealloc_pd;
static int (*close_device)(struct ibv_context *) = ibv_close_device;
static const char *device, *setting;
static struct ibv_context *context;
static struct ibv_pd *pd;

__attribute__((format(printf, 2, 3))) static void say(const char *what, const char *format, ...)
{
	va_list args;

	printf("%-24s ", what);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

static void say_error(const char *what, int error)
{
	say(what, "%s", error_name(error));
}

static bool is_device(const char *name)
{
	return !strcmp(device, name);
}

static void *make(size_t length)
{
	void *p;

	need((p = aligned_alloc(PAGE, length)));
	memset(p, 1, length);
	return p;
}

static void try_advice(void)
{
	char *p = make(MIB);
	struct ibv_mr *mr = ibv_reg_mr(pd, p, MIB, IBV_ACCESS_ON_DEMAND | 1);
	struct ibv_sge sge = {(uintptr_t)p, MIB, mr ? mr->lkey : 0};
	struct ibv_device_attr_ex attr;
	int error;

	say_error("advise", ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	if (mr)
		dereg(mr);
	need((mr = ibv_reg_mr(pd, p, MIB, RIGHTS)));
	sge.lkey = mr->lkey;
	say_error("advise pinned",
		  ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	dereg(mr);
	error = ibv_query_device_ex(context, NULL, &attr);
	say("query device", "%s max_mr %d odp %lx", error_name(error), attr.orig_attr.max_mr,
	    (unsigned long)attr.odp_caps.general_caps);
	mr = ibv_alloc_null_mr(pd);
	say_error("null mr", mr ? dereg(mr) : errno);
	free(p);
}

/* ---- queue pairs ---- */

static struct ibv_qp *make_qp(struct ibv_pd *in, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 64,
			.max_recv_wr = 64,
			.max_send_sge = 2,
			.max_recv_sge = 2},
	};

	if (!is_device("efa"))
		return ibv_create_qp(in, &attr);
	attr.qp_type = IBV_QPT_DRIVER;
	return efadv_create_driver_qp(in, &attr, EFADV_QP_DRIVER_TYPE_SRD);
}

static int to_ready(struct ibv_qp *qp)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 1,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {.dlid = 1, .port_num = 1},
	};
	struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .timeout = 14, .max_rd_atomic = 1};
	int error;

	error = ibv_modify_qp(qp, &init,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				      IBV_QP_ACCESS_FLAGS);
	if (!error)
		error = ibv_modify_qp(qp, &receive,
				      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					      IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (!error)
		error = ibv_modify_qp(qp, &send,
				      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					      IBV_QP_MAX_QP_RD_ATOMIC);
	return error;
}

/* Providers check what a window is bound to. */
static void try_window(struct ibv_qp *qp, unsigned access, unsigned wanted)
{
	char *p = make(MIB);
	struct ibv_mr *mr = ibv_reg_mr(pd, p, MIB, (int)access);
	struct ibv_mw *first = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_mw *second = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = {.bind_info = {mr, (uintptr_t)p, PAGE, wanted}};
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_BIND_MW};

	say("window", "%x %x: %s", access, wanted, !mr || !first ? error_name(errno) : "ok");
	if (mr && first) {
		say_error("bind", ibv_bind_mw(qp, first, &bind));
		bind.bind_info.length = 2 * MIB;
		say_error("bind too much", ibv_bind_mw(qp, first, &bind));
		bind.bind_info.length = 0;
		say_error("bind nothing", ibv_bind_mw(qp, first, &bind));
	}
	if (mr && second) {
		wr.bind_mw.mw = second;
		wr.bind_mw.rkey = ibv_inc_rkey(second->rkey);
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)p, PAGE,
								 wanted};
		say_error("bind type 2", ibv_post_send(qp, &wr, &bad));
	}
	if (first)
		ibv_dealloc_mw(first);
	if (second)
		ibv_dealloc_mw(second);
	if (mr)
		say_error("dereg of bound", dereg(mr));
	free(p);
}

static void try_posts(struct ibv_qp *qp)
{
	char *p = make(MIB);
	struct ibv_mr *mr = ibv_reg_mr(pd, p, MIB, RIGHTS);
	struct ibv_sge sge = {(uintptr_t)p, PAGE, mr ? mr->lkey : 0};
	struct ibv_recv_wr *bad, wr = {.sg_list = &sge, .num_sge = 1};
	struct ibv_send_wr *bad_send;
	struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};

	say_error("modify qp", to_ready(qp));
	say_error("post recv", ibv_post_recv(qp, &wr, &bad));
	say_error("post send", ibv_post_send(qp, &send, &bad_send));
	say_error("dereg of posted", mr ? dereg(mr) : EINVAL);
	try_window(qp, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_WRITE);
	try_window(qp, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE);
	try_window(qp, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_WRITE);
	try_window(qp, RIGHTS, IBV_ACCESS_REMOTE_READ);
	free(p);
}

static void try_queues(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 256, NULL, NULL, 0);
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 64, .max_sge = 2}};
	struct ibv_ah_attr ah_attr = {.dlid = 1, .port_num = 1, .is_global = 1};
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;

	say_error("create cq", cq ? 0 : errno);
	if (!cq)
		return;
	if (!is_device("mlx4")) /* which waits for a completion */
		say_error("resize cq", ibv_resize_cq(cq, 512));
	srq = ibv_create_srq(pd, &srq_attr);
	say_error("srq", srq ? ibv_destroy_srq(srq) : errno);
	errno = 0;
	ah = ibv_create_ah(pd, &ah_attr);
	say_error("ah", ah ? ibv_destroy_ah(ah) : errno);
	qp = make_qp(pd, cq);
	say_error("create qp", qp ? 0 : errno);
	if (qp) {
		if (!is_device("efa"))
			try_posts(qp);
		say_error("destroy qp", ibv_destroy_qp(qp));
	}
	say_error("destroy cq", ibv_destroy_cq(cq));
}

/* ---- domains ---- */

static void *take(struct ibv_pd *in, void *n, size_t size, size_t alignment, uint64_t kind)
{
	(void)in, (void)size, (void)alignment, (void)kind;
	++*(int *)n;
	return IBV_ALLOCATOR_USE_DEFAULT;
}

static void give(struct ibv_pd *in, void *n, void *p, uint64_t kind)
{
	(void)in, (void)n, (void)kind;
	free(p);
}

static void use_parent(struct ibv_pd *parent, const int *n_allocations)
{
	char *p = make(MIB);
	struct ibv_mr *mr = ibv_reg_mr(parent, p, MIB, RIGHTS);
	struct ibv_mr *twin = ibv_reg_mr(pd, p, MIB, RIGHTS);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_qp *qp = cq ? make_qp(parent, cq) : NULL;

	need(mr && twin);
	say("reg on parent", "pd %d adapter %s", mr->pd == parent,
	    error_name(ask(mr, p, MIB, RIGHTS)));
	say("qp on parent", "%s, %d allocations",
	    qp ? error_name(ibv_destroy_qp(qp)) : error_name(errno), *n_allocations);
	if (cq)
		ibv_destroy_cq(cq);
	say_error("dealloc in use", dealloc(parent));
	say_error("dereg on parent", dereg(mr));
	say_error("its twin", ask(twin, p, MIB, RIGHTS));
	dereg(twin);
	free(p);
}

static void try_parent(void)
{
	struct ibv_td_init_attr td_attr = {0};
	struct ibv_td *td = ibv_alloc_td(context, &td_attr);
	int n_allocations = 0;
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd,
		.td = td,
		.alloc = take,
		.free = give,
		.pd_context = &n_allocations,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
	};
	struct ibv_pd *parent;

	say_error("td", td ? 0 : errno);
	parent = ibv_alloc_parent_domain(context, &attr);
	if (!parent) {
		attr.comp_mask = 0;
		parent = ibv_alloc_parent_domain(context, &attr);
	}
	say_error("parent", parent ? 0 : errno);
	if (parent)
		use_parent(parent, &n_allocations);
	if (td)
		say_error("dealloc td", ibv_dealloc_td(td));
}

/* Another context over the same descriptor, as another process would open it. */
static void use_imported(struct ibv_context *other)
{
	char *p = make(MIB), *mapped;
	struct ibv_pd *its = ibv_import_pd(other, pd->handle);
	struct ibv_mr *mr, *twin, *imported;

	say_error("import pd", its ? 0 : errno);
	if (!its)
		return;
	mapped = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(mapped != MAP_FAILED && (mr = ibv_reg_mr(pd, mapped, MIB, RIGHTS)));
	need((twin = ibv_reg_mr(pd, p, MIB, RIGHTS)));
	imported = ibv_import_mr(its, mr->handle);
	say_error("import mr", imported ? 0 : errno);
	if (imported) {
		say("imported", "length %d adapter %s", imported->length == mr->length,
		    error_name(ask(imported, mapped, MIB, RIGHTS)));
		ibv_unimport_mr(imported);
		/* One process must deregister: it may be the importer. */
		imported = ibv_import_mr(its, mr->handle);
		say_error("dereg of imported", dereg(imported));
	}
	mr = ibv_reg_mr(its, p, MIB, RIGHTS);
	say_error("reg on imported", mr ? ask(mr, p, MIB, RIGHTS) : errno);
	if (mr)
		say_error("dereg on imported", dereg(mr));
	say_error("twin", ask(twin, p, MIB, RIGHTS));
	say_error("dereg twin", dereg(twin));
	ibv_unimport_pd(its);
	munmap(mapped, MIB);
	free(p);
}

static void try_import(void)
{
	int fd = dup(context->cmd_fd);
	struct ibv_context *other = ibv_import_device(fd);

	say_error("import device", other ? 0 : errno);
	if (!other) {
		close(fd);
		return;
	}
	use_imported(other);
	say_error("close imported", close_device(other));
}

/* ---- mlx5's own verbs ---- */

static struct ibv_qp *make_direct_qp(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {64, 64, 4, 2, 64},
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW |
				  IBV_QP_EX_WITH_LOCAL_INV,
	};
	struct mlx5dv_qp_init_attr direct = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED,
	};

	return mlx5dv_create_qp(context, &attr, &direct);
}

/* What is posted names memory regions by structure, not only by key. */
static void post_directly(struct ibv_qp *qp, struct mlx5dv_mkey *mkey)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	struct mlx5dv_qp_ex *direct = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
	char *p = make(4 * MIB), *far = p + 2 * MIB;
	struct ibv_mr *mr = ibv_reg_mr(pd, p, MIB, RIGHTS);
	struct ibv_mr *other = ibv_reg_mr(pd, far, MIB, RIGHTS);
	struct ibv_mr *bindable = ibv_reg_mr(pd, p, MIB,
					     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info info = {bindable, (uintptr_t)p, PAGE, IBV_ACCESS_REMOTE_WRITE};

	need(mr && other && bindable && mw);
	struct ibv_sge list[2] = {{(uintptr_t)p, MIB, mr->lkey},
				  {(uintptr_t)far, MIB, other->lkey}};
	say_error("to rts", to_ready(qp));
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	mlx5dv_wr_mr_list(direct, mkey, IBV_ACCESS_LOCAL_WRITE, 2, list);
	say_error("mlx5dv_wr_mr_list", ibv_wr_complete(ex));
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(ex, mw, ibv_inc_rkey(mw->rkey), &info);
	say_error("ibv_wr_bind_mw", ibv_wr_complete(ex));
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)p);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)p, PAGE);
	say_error("ibv_wr_rdma_write", ibv_wr_complete(ex));
	ibv_dealloc_mw(mw);
	say("dereg", "%s %s %s", error_name(dereg(bindable)), error_name(dereg(mr)),
	    error_name(dereg(other)));
	free(p);
}

static void try_mlx5(void)
{
	struct mlx5dv_mkey_init_attr mkey_attr = {
		.pd = pd,
		.max_entries = 4,
		.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT,
	};
	struct mlx5dv_mkey *mkey = mlx5dv_create_mkey(&mkey_attr);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_qp *qp = cq ? make_direct_qp(cq) : NULL;
	struct mlx5dv_context attr = {.comp_mask = ~0ull};
	struct mlx5dv_devx_umem *umem;
	struct mlx5dv_pd direct_pd;
	struct mlx5dv_obj object = {.pd = {pd, &direct_pd}};
	char *p = make(MIB);
	int error = mlx5dv_query_device(context, &attr);

	say("mlx5dv_query_device", "%s flags %lx", error_name(error),
	    (unsigned long)attr.flags);
	say_error("mlx5dv_init_obj", mlx5dv_init_obj(&object, MLX5DV_OBJ_PD));
	umem = mlx5dv_devx_umem_reg(context, p, MIB, RIGHTS);
	say_error("devx umem", umem ? mlx5dv_devx_umem_dereg(umem) : errno);
	say_error("mlx5dv_create_mkey", mkey ? 0 : errno);
	say_error("mlx5dv_create_qp", qp ? 0 : errno);
	if (qp && mkey)
		post_directly(qp, mkey);
	if (qp)
		ibv_destroy_qp(qp);
	if (cq)
		ibv_destroy_cq(cq);
	if (mkey)
		say_error("mlx5dv_destroy_mkey", mlx5dv_destroy_mkey(mkey));
	free(p);
}

static void find_verbs(void)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW);

	need(verbs);
	need((dereg = dlsym(verbs, "ibv_dereg_mr")));
	need((dealloc = dlsym(verbs, "ibv_dealloc_pd")));
	need((close_device = dlsym(verbs, "ibv_close_device")));
}

static void try_all(void)
{
	try_advice();
	if (!is_device("hfi1") && !is_device("qib")) /* which do not unmap what they mapped */
		try_queues();
	try_parent();
	if (is_device("mlx5"))
		try_mlx5();
	try_import();
}

int main(int argc, char **argv)
{
	struct mlx5dv_context_attr direct = {0};
	struct ibv_device **list, *of;

	need(argc == 3);
	device = argv[1];
	setting = argv[2];
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!strcmp(setting, "dlsym"))
		find_verbs();
	if (!strcmp(setting, "fork"))
		say_error("ibv_fork_init", ibv_fork_init());
	need((list = ibv_get_device_list(NULL)));
	need((of = find_device(list, device)));
	context = strcmp(setting, "direct") ? ibv_open_device(of)
					    : mlx5dv_open_device(of, &direct);
	need(context && (pd = ibv_alloc_pd(context)));
	try_all();
	say_error("dealloc", dealloc(pd));
	say_error("close", close_device(context));
	ibv_free_device_list(list);
	return 0;
}
