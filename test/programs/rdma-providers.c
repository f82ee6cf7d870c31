// SPDX-License-Identifier: BSD-2-Clause
/*
 * What programs do with memory regions, with a provider of rdma-core over test/lab/providers.
 * Prints a line for each case, for comparison with another run; each key that it gets is asked.
 *
 *   usage: rdma-providers DEVICE plain|dlsym|fork|direct|replaced
 *     dlsym     finds verbs as Python and NCCL do
 *     fork      after ibv_fork_init
 *     direct    opens the device with mlx5dv_open_device
 *     replaced  tries only what becomes of pages that are replaced
 * pinalloc(7) says what differs when a memory region of the heap is imported: none is here.
 */
#include <dlfcn.h>
#include <infiniband/efadv.h>
#include <infiniband/mlx5dv.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "oracle.h"
#include "stale-ways.h"

#define RIGHTS RDMA_ACCESS

static int (*dereg)(struct ibv_mr *) = ibv_dereg_mr;
static int (*rereg)(struct ibv_mr *, int, struct ibv_pd *, void *, size_t, int) = ibv_rereg_mr;
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

/* ---- memory regions ---- */

static void say_region(const char *what, struct ibv_mr *mr, char *p, size_t length,
		       unsigned access)
{
	const char *answer;
	bool is_right;

	if (!mr) {
		say(what, "%x: %s", access, error_name(errno));
		return;
	}
	is_right = mr->addr == p && mr->length == length && mr->pd == pd &&
		   mr->context == context;
	answer = error_name(ask(mr, p, length, access & 0x1f));
	say(what, "%x: right %d adapter %s dereg %s", access, is_right, answer,
	    error_name(dereg(mr)));
}

static void try_rights(void)
{
	static const unsigned rights[] = {
		0,
		IBV_ACCESS_LOCAL_WRITE,
		IBV_ACCESS_REMOTE_READ,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		RIGHTS,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_HUGETLB,
		IBV_ACCESS_REMOTE_WRITE, /* needs a local one */
	};
	char *p = make(4 * MIB);

	for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
		char *at = p + MIB - 100;

		say_region("rights", ibv_reg_mr(pd, at, 2 * MIB, (int)rights[i]), at, 2 * MIB,
			   rights[i]);
	}
	free(p);
}

/* Of no size and every size, of no page and many. */
static void try_ranges(void)
{
	char *p = make(8 * MIB), *small = strcpy(malloc(100), "small");
	static char fixed[PAGE];
	char stack[PAGE] = "";
	struct ibv_mr *mr;

	say_region("100 bytes", ibv_reg_mr(pd, small, 100, 1), small, 100, 1);
	say_region("a page", ibv_reg_mr(pd, p, PAGE, RIGHTS), p, PAGE, RIGHTS);
	say_region("a byte", ibv_reg_mr(pd, p + PAGE - 1, 1, RIGHTS), p + PAGE - 1, 1, RIGHTS);
	say_region("8 MiB", ibv_reg_mr(pd, p, 8 * MIB, RIGHTS), p, 8 * MIB, RIGHTS);
	say_region("static", ibv_reg_mr(pd, fixed, PAGE, RIGHTS), fixed, PAGE, RIGHTS);
	say_region("stack", ibv_reg_mr(pd, stack, PAGE, RIGHTS), stack, PAGE, RIGHTS);
	if (strcmp(setting, "fork")) /* where libibverbs' madvise refuses it, or the kernel */
		say_region("nowhere", ibv_reg_mr(pd, (void *)PAGE, PAGE, RIGHTS), (void *)PAGE,
			   PAGE, RIGHTS);
	errno = 0;
	mr = ibv_reg_mr(pd, p, 0, RIGHTS);
	say("0 bytes", "%s", mr ? error_name(dereg(mr)) : error_name(errno));
	mr = ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND | 1);
	say("all, on demand", "%s", mr ? error_name(dereg(mr)) : error_name(errno));
	mr = ibv_reg_mr_iova(pd, p, MIB, 0x10000, RIGHTS);
	say("another address", "%s",
	    mr ? error_name(ask(mr, (void *)0x10000, MIB, RIGHTS)) : error_name(errno));
	if (mr)
		dereg(mr);
	mr = ibv_reg_dmabuf_mr(pd, 0, MIB, 0, -1, RIGHTS);
	say("no dma-buf", "%s", mr ? error_name(dereg(mr)) : error_name(errno));
	free(small);
	free(p);
}

static char *map_mib(void *at)
{
	char *p = mmap(at, MIB, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	need(p != MAP_FAILED);
	return p;
}

/* Memory that the program maps, and maps again at the same address: also under a key. */
static void try_mapped(void)
{
	char *p = map_mib(NULL);
	struct ibv_mr *mr;

	for (int i = 0; i < 4; i++) {
		say_region("mapped", ibv_reg_mr(pd, p, MIB, RIGHTS), p, MIB, RIGHTS);
		map_mib(p);
	}
	need((mr = ibv_reg_mr(pd, p, MIB, RIGHTS)));
	map_mib(p);
	say("mapped under a key", "%s", error_name(oracle(pd, mr->lkey, p, MIB, RIGHTS)));
	need(!dereg(mr));
	munmap(p, MIB);
}

#define N_AT_ONCE 100

static void try_many(void)
{
	char *p = make(2 * MIB);
	struct ibv_mr *all[N_AT_ONCE];
	uint64_t random = 1;
	int n_good = 0, n_ended = 0;

	for (int i = 0; i < N_AT_ONCE; i++) {
		size_t at = rdma_random(&random) % MIB, n = 1 + rdma_random(&random) % MIB;

		need((all[i] = ibv_reg_mr(pd, p + at, n, RIGHTS)));
		n_good += !ask(all[i], p + at, n, RIGHTS);
	}
	for (int i = 0; i < N_AT_ONCE; i++) /* in another order */
		n_ended += !dereg(all[i * 7 % N_AT_ONCE]);
	say("many", "%d right, %d ended", n_good, n_ended);
	free(p);
}

/* Blocks come, grow and go while others are registered. */
static void *work(void *seed)
{
	uint64_t random = (uintptr_t)seed;
	size_t n_right = 0;

	for (int i = 0; i < 50; i++) {
		size_t n = rdma_random_size(&random, 20);
		char *p = malloc(n);
		struct ibv_mr *mr;

		need(p);
		memset(p, i, n);
		if (i % 4 == 0) {
			n += rdma_random_size(&random, 20);
			need((p = realloc(p, n)));
			memset(p, i, n);
		}
		need((mr = ibv_reg_mr(pd, p, n, RIGHTS)));
		n_right += !ask(mr, p, n, RIGHTS);
		need(!dereg(mr));
		free(p);
	}
	return (void *)n_right;
}

static void try_threads(void)
{
	pthread_t threads[4];
	size_t n_right = 0;
	void *result;

	for (uintptr_t i = 0; i < 4; i++)
		need(!pthread_create(&threads[i], NULL, work, (void *)(i + 1)));
	for (int i = 0; i < 4; i++) {
		need(!pthread_join(threads[i], &result));
		n_right += (size_t)result;
	}
	say("threads", "%zu right", n_right);
}

/* Pages of the heap go behind malloc; nobody tells the adapter. */
static void try_replaced(const struct way *way)
{
	char *p = make(4 * MIB);
	struct place place = {.buffer = p + MIB, .n_bytes = MIB};
	struct ibv_mr *mr = ibv_reg_mr(pd, p, 4 * MIB, RIGHTS), *again;
	int before;

	need(mr);
	before = ask(mr, p, 4 * MIB, RIGHTS);
	need(!dereg(mr) && !replace_pages(way, &place));
	memset(place.buffer, 2, MIB);
	need((again = ibv_reg_mr(pd, p, 4 * MIB, RIGHTS)));
	say("replaced", "%s, then %s", error_name(before),
	    error_name(ask(again, p, 4 * MIB, RIGHTS)));
	need(!dereg(again)); /* the block stays, so that the next one is another */
}

/* Where a provider cannot, all stays as it was. Its code for that is below 0. */
static void try_rereg(void)
{
	char *p = make(4 * MIB), *now = p;
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_mr *mr = ibv_reg_mr(pd, p, MIB, RIGHTS),
		      *twin = ibv_reg_mr(pd, p, MIB, RIGHTS);
	int error;

	need(other && mr && twin);
	say("another's key", "%s", error_name(oracle(other, mr->lkey, p, MIB, RIGHTS)));
	error = rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, p + 2 * MIB, MIB, 0);
	if (!error)
		now = p + 2 * MIB;
	say("rereg translation", "%d addr %d length %d adapter %s", error, mr->addr == now,
	    mr->length == MIB, error_name(ask(mr, now, MIB, RIGHTS)));
	if (!error)
		say("its old range", "%s", error_name(ask(mr, p, MIB, RIGHTS)));
	say("its twin", "%s", error_name(ask(twin, p, MIB, RIGHTS)));
	error = rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1);
	say("rereg access", "%d adapter %s", error, error_name(ask(mr, now, MIB, 1)));
	if (!error)
		say("its old rights", "%s", error_name(ask(mr, now, MIB, RIGHTS)));
	error = rereg(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0);
	say("rereg pd", "%d pd %d adapter %s", error, mr->pd == (error ? pd : other),
	    error_name(ask(mr, now, MIB, 1)));
	errno = 0;
	error = rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, MIB, 0);
	say("rereg nothing", "%d %s", error, error_name(errno));
	say("dereg twin", "%s", error_name(dereg(twin)));
	say("dereg", "%s", error_name(dereg(mr)));
	say("dealloc", "%s", error_name(dealloc(other)));
	free(p);
}

static void try_advice(void)
{
	char *p = make(MIB);
	struct ibv_mr *mr = ibv_reg_mr(pd, p, MIB, IBV_ACCESS_ON_DEMAND | 1);
	struct ibv_sge sge = {(uintptr_t)p, MIB, mr ? mr->lkey : 0};
	struct ibv_device_attr_ex attr;
	int error;

	say("advise", "%s",
	    error_name(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1)));
	if (mr)
		dereg(mr);
	need((mr = ibv_reg_mr(pd, p, MIB, RIGHTS)));
	sge.lkey = mr->lkey;
	say("advise pinned", "%s",
	    error_name(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1)));
	dereg(mr);
	error = ibv_query_device_ex(context, NULL, &attr);
	say("query device", "%s max_mr %d odp %lx", error_name(error), attr.orig_attr.max_mr,
	    (unsigned long)attr.odp_caps.general_caps);
	mr = ibv_alloc_null_mr(pd);
	say("null mr", "%s", mr ? error_name(dereg(mr)) : error_name(errno));
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
		say("bind", "%s", error_name(ibv_bind_mw(qp, first, &bind)));
		bind.bind_info.length = 2 * MIB;
		say("bind too much", "%s", error_name(ibv_bind_mw(qp, first, &bind)));
		bind.bind_info.length = 0;
		say("bind nothing", "%s", error_name(ibv_bind_mw(qp, first, &bind)));
	}
	if (mr && second) {
		wr.bind_mw.mw = second;
		wr.bind_mw.rkey = ibv_inc_rkey(second->rkey);
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){mr, (uintptr_t)p, PAGE,
								 wanted};
		say("bind type 2", "%s", error_name(ibv_post_send(qp, &wr, &bad)));
	}
	if (first)
		ibv_dealloc_mw(first);
	if (second)
		ibv_dealloc_mw(second);
	if (mr)
		say("dereg of bound", "%s", error_name(dereg(mr)));
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

	say("modify qp", "%s", error_name(to_ready(qp)));
	say("post recv", "%s", error_name(ibv_post_recv(qp, &wr, &bad)));
	say("post send", "%s", error_name(ibv_post_send(qp, &send, &bad_send)));
	say("dereg of posted", "%s", error_name(mr ? dereg(mr) : EINVAL));
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

	say("create cq", "%s", cq ? "ok" : error_name(errno));
	if (!cq)
		return;
	if (!is_device("mlx4")) /* which waits for a completion */
		say("resize cq", "%s", error_name(ibv_resize_cq(cq, 512)));
	srq = ibv_create_srq(pd, &srq_attr);
	say("srq", "%s", srq ? error_name(ibv_destroy_srq(srq)) : error_name(errno));
	errno = 0;
	ah = ibv_create_ah(pd, &ah_attr);
	say("ah", "%s", ah ? error_name(ibv_destroy_ah(ah)) : error_name(errno));
	qp = make_qp(pd, cq);
	say("create qp", "%s", qp ? "ok" : error_name(errno));
	if (qp) {
		if (!is_device("efa"))
			try_posts(qp);
		say("destroy qp", "%s", error_name(ibv_destroy_qp(qp)));
	}
	say("destroy cq", "%s", error_name(ibv_destroy_cq(cq)));
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
	say("dealloc in use", "%s", error_name(dealloc(parent)));
	say("dereg on parent", "%s", error_name(dereg(mr)));
	say("its twin", "%s", error_name(ask(twin, p, MIB, RIGHTS)));
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

	say("td", "%s", td ? "ok" : error_name(errno));
	parent = ibv_alloc_parent_domain(context, &attr);
	if (!parent) {
		attr.comp_mask = 0;
		parent = ibv_alloc_parent_domain(context, &attr);
	}
	say("parent", "%s", parent ? "ok" : error_name(errno));
	if (parent)
		use_parent(parent, &n_allocations);
	if (td)
		say("dealloc td", "%s", error_name(ibv_dealloc_td(td)));
}

/* Another context over the same descriptor, as another process would open it. */
static void use_imported(struct ibv_context *other)
{
	char *p = make(MIB), *mapped;
	struct ibv_pd *its = ibv_import_pd(other, pd->handle);
	struct ibv_mr *mr, *twin, *imported;

	say("import pd", "%s", its ? "ok" : error_name(errno));
	if (!its)
		return;
	mapped = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(mapped != MAP_FAILED && (mr = ibv_reg_mr(pd, mapped, MIB, RIGHTS)));
	need((twin = ibv_reg_mr(pd, p, MIB, RIGHTS)));
	imported = ibv_import_mr(its, mr->handle);
	say("import mr", "%s", imported ? "ok" : error_name(errno));
	if (imported) {
		say("imported", "length %d adapter %s", imported->length == mr->length,
		    error_name(ask(imported, mapped, MIB, RIGHTS)));
		ibv_unimport_mr(imported);
		/* One process must deregister: it may be the importer. */
		imported = ibv_import_mr(its, mr->handle);
		say("dereg of imported", "%s", error_name(dereg(imported)));
	}
	mr = ibv_reg_mr(its, p, MIB, RIGHTS);
	say("reg on imported", "%s",
	    mr ? error_name(ask(mr, p, MIB, RIGHTS)) : error_name(errno));
	if (mr)
		say("dereg on imported", "%s", error_name(dereg(mr)));
	say("twin", "%s", error_name(ask(twin, p, MIB, RIGHTS)));
	say("dereg twin", "%s", error_name(dereg(twin)));
	ibv_unimport_pd(its);
	munmap(mapped, MIB);
	free(p);
}

static void try_import(void)
{
	int fd = dup(context->cmd_fd);
	struct ibv_context *other = ibv_import_device(fd);

	say("import device", "%s", other ? "ok" : error_name(errno));
	if (!other) {
		close(fd);
		return;
	}
	use_imported(other);
	say("close imported", "%s", error_name(close_device(other)));
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
	say("to rts", "%s", error_name(to_ready(qp)));
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	mlx5dv_wr_mr_list(direct, mkey, IBV_ACCESS_LOCAL_WRITE, 2, list);
	say("mlx5dv_wr_mr_list", "%s", error_name(ibv_wr_complete(ex)));
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(ex, mw, ibv_inc_rkey(mw->rkey), &info);
	say("ibv_wr_bind_mw", "%s", error_name(ibv_wr_complete(ex)));
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)p);
	ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)p, PAGE);
	say("ibv_wr_rdma_write", "%s", error_name(ibv_wr_complete(ex)));
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
	say("mlx5dv_init_obj", "%s", error_name(mlx5dv_init_obj(&object, MLX5DV_OBJ_PD)));
	umem = mlx5dv_devx_umem_reg(context, p, MIB, RIGHTS);
	say("devx umem", "%s",
	    umem ? error_name(mlx5dv_devx_umem_dereg(umem)) : error_name(errno));
	say("mlx5dv_create_mkey", "%s", mkey ? "ok" : error_name(errno));
	say("mlx5dv_create_qp", "%s", qp ? "ok" : error_name(errno));
	if (qp && mkey)
		post_directly(qp, mkey);
	if (qp)
		ibv_destroy_qp(qp);
	if (cq)
		ibv_destroy_cq(cq);
	if (mkey)
		say("mlx5dv_destroy_mkey", "%s", error_name(mlx5dv_destroy_mkey(mkey)));
	free(p);
}

/* ---- ends ---- */

/* After ibv_fork_init a child has nothing of what is registered. */
static int child_ends(char *p)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		if (strcmp(setting, "fork"))
			memset(p, 2, MIB);
		free(malloc(MIB));
		_exit(0);
	}
	need(child > 0 && waitpid(child, &status, 0) == child);
	return status;
}

/* Contexts that end with everything in them. */
static void try_ends(struct ibv_device *of)
{
	char *p = make(4 * MIB);
	struct ibv_context *other = ibv_open_device(of);
	struct ibv_pd *its = other ? ibv_alloc_pd(other) : NULL;
	struct ibv_mr *mr;

	need(its && (mr = ibv_reg_mr(its, p, MIB, RIGHTS)));
	say("dealloc in use", "%s", error_name(dealloc(its)));
	say("its key", "%s", error_name(ask(mr, p, MIB, RIGHTS)));
	need(ibv_reg_mr(its, p + MIB, MIB, 1));
	say("close in use", "%s", error_name(close_device(other)));
	need((other = ibv_open_device(of)) && (its = ibv_alloc_pd(other)));
	need((mr = ibv_reg_mr(its, p, MIB, RIGHTS)));
	say("open again", "%s", error_name(ask(mr, p, MIB, RIGHTS)));
	say("child", "%d", child_ends(p));
	memset(p, 3, MIB);
	say("after a fork", "%s", error_name(ask(mr, p, MIB, RIGHTS)));
	say("dereg", "%s", error_name(dereg(mr)));
	say("dealloc", "%s", error_name(dealloc(its)));
	say("close", "%s", error_name(close_device(other)));
	free(p);
}

static void find_verbs(void)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW);

	need(verbs);
	need((dereg = dlsym(verbs, "ibv_dereg_mr")));
	need((rereg = dlsym(verbs, "ibv_rereg_mr")));
	need((dealloc = dlsym(verbs, "ibv_dealloc_pd")));
	need((close_device = dlsym(verbs, "ibv_close_device")));
}

static void try_all(struct ibv_device *of)
{
	try_rights();
	try_ranges();
	try_mapped();
	try_many();
	try_threads();
	try_rereg();
	try_advice();
	if (!is_device("hfi1") && !is_device("qib")) /* which do not unmap what they mapped */
		try_queues();
	try_parent();
	if (is_device("mlx5"))
		try_mlx5();
	try_import();
	try_ends(of);
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
		say("ibv_fork_init", "%s", error_name(ibv_fork_init()));
	need((list = ibv_get_device_list(NULL)));
	need((of = find_device(list, device)));
	context = strcmp(setting, "direct") ? ibv_open_device(of)
					    : mlx5dv_open_device(of, &direct);
	need(context && (pd = ibv_alloc_pd(context)));
	if (strcmp(setting, "replaced"))
		try_all(of);
	for (size_t i = 0; i < N_WAYS && !strcmp(setting, "replaced"); i++)
		if (ways[i].of == ANY)
			try_replaced(&ways[i]);
	say("dealloc", "%s", error_name(dealloc(pd)));
	say("close", "%s", error_name(close_device(context)));
	ibv_free_device_list(list);
	return 0;
}
