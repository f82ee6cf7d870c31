/* SPDX-License-Identifier: BSD-2-Clause */
/* The commands of rdma-script.c that call verbs, linked or found with dlsym(). */
#include "test/programs/script.h"

#include "test/programs/oracle.h"

#include <dlfcn.h>

/* Macros that choose between functions at compile time. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

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

/* Of the first ABI: what these return are other structures, known to libibverbs only. */
static __thread bool are_old;
static const struct verbs linked = {ibv_open_device, ibv_alloc_pd,    ibv_reg_mr,
				    ibv_reg_mr_iova, ibv_rereg_mr,    ibv_dereg_mr,
				    ibv_dealloc_pd,  ibv_close_device};
static __thread struct verbs verbs;

static struct verbs *in_use(void)
{
	if (!verbs.open_device)
		verbs = linked;
	return &verbs;
}

/*
 * find BITS [VERSION]: from here on those verbs are found, in the order of the structure; the
 * others are linked. Libibverbs is opened in every way, and asked for a version or for the
 * newest.
 */
static int do_find(const struct step *step)
{
	static const char *const names[VERBS] = {
		"ibv_open_device", "ibv_alloc_pd", "ibv_reg_mr",     "ibv_reg_mr_iova",
		"ibv_rereg_mr",	   "ibv_dereg_mr", "ibv_dealloc_pd", "ibv_close_device"};
	static const int flags[] = {RTLD_LOCAL, RTLD_NOLOAD, RTLD_DEEPBIND};
	size_t bits = number_of(step->words[1]);
	void *handle = dlopen("libibverbs.so.1", RTLD_NOW | flags[bits % 3]);
	void **at = (void **)&verbs;

	need(handle);
	verbs = linked;
	are_old = step->n > 2;
	for (size_t i = 0; i < VERBS; i++) {
		const char *version = are_old  ? step->words[2]
				      : i == 3 ? "IBVERBS_1.7"
					       : "IBVERBS_1.1";

		if (bits >> i & 1)
			need((at[i] = bits % 3 ? dlsym(handle, names[i])
					       : dlvsym(handle, names[i], version)));
	}
	return 0;
}

static struct thing *named(const struct step *step, int word, const char *otherwise)
{
	return thing_of(step->n > word ? step->words[word] : otherwise);
}

/* --- devices and protection domains ------------------------------------------------------ */

/* Mellanox's own verb for that, with no wishes. */
static struct ibv_context *open_directly(struct ibv_device *of)
{
	struct ibv_context *(*verb)(struct ibv_device *, const void *);
	static const uint64_t attributes[8];

	need((*(void **)&verb = dlsym(dlopen("libmlx5.so.1", RTLD_NOW), "mlx5dv_open_device")));
	return verb(of, attributes);
}

/* open [NAME [direct]]: that device, or the first one; it is in use from here on */
static int do_open(const struct step *step)
{
	struct ibv_device **devices, **(*get_list)(int *) = ibv_get_device_list, *of;

	if (are_old)
		need((*(void **)&get_list = dlvsym(RTLD_DEFAULT, "ibv_get_device_list",
						   "IBVERBS_1.0")));
	need((devices = get_list(NULL)));
	need((of = step->n > 1 ? find_device(devices, step->words[1]) : devices[0]));
	step->it->context = step->n > 2 ? open_directly(of) : in_use()->open_device(of);
	if (!are_old)
		ibv_free_device_list(devices);
	use_context(step->it->context);
	return result_of_pointer(step->it->context);
}

static int do_close(const struct step *step)
{
	return in_use()->close_device(named(step, 1, "open")->context);
}

/* pd: in the device in use; it is in use from here on */
static int do_pd(const struct step *step)
{
	step->it->context = context_in_use();
	step->it->pd = in_use()->alloc_pd(step->it->context);
	use_pd(step->it->pd);
	return result_of_pointer(step->it->pd);
}

/* use PD */
static int do_use(const struct step *step)
{
	const struct thing *it = thing_of(step->words[1]);

	use_context(it->context);
	use_pd(it->pd);
	return 0;
}

static int do_dealloc(const struct step *step)
{
	return in_use()->dealloc_pd(named(step, 1, "pd")->pd);
}

static struct {
	const struct ibv_pd *pd;
	bool is_again;
} seen[512];
static unsigned n_seen;

/* seen PD: notes whether there was one at its address before */
static int do_seen(const struct step *step)
{
	const struct ibv_pd *pd = thing_of(step->words[1])->pd;

	need(n_seen < 512);
	for (unsigned i = 0; i < n_seen; i++)
		seen[n_seen].is_again |= seen[i].pd == pd;
	seen[n_seen++].pd = pd;
	return 0;
}

/* seen-again N: so many were, at least */
static int do_seen_again(const struct step *step)
{
	size_t n = 0;

	for (unsigned i = 0; i < n_seen; i++)
		n += seen[i].is_again;
	return result_of(n >= number_of(step->words[1]));
}

/* import: the device in use once more */
static int do_import(const struct step *step)
{
	step->it->context = ibv_import_device(dup(context_in_use()->cmd_fd));
	return result_of_pointer(step->it->context);
}

/* import-pd PD DEVICE */
static int do_import_pd(const struct step *step)
{
	step->it->context = thing_of(step->words[2])->context;
	step->it->pd = ibv_import_pd(step->it->context, thing_of(step->words[1])->pd->handle);
	return result_of_pointer(step->it->pd);
}

static int do_unimport(const struct step *step)
{
	ibv_unimport_pd(thing_of(step->words[1])->pd);
	return 0;
}

/* --- queue pairs ------------------------------------------------------------------------- */

static int do_qp(const struct step *step)
{
	(void)step;
	return result_of_pointer(queue()->qp);
}

static int do_unqp(const struct step *step)
{
	(void)step;
	end_queue();
	return 0;
}

/* make KIND: another object of the adapter, which stays */
static int do_make(const struct step *step)
{
	struct ibv_pd *pd = pd_in_use();
	struct ibv_cq *cq = queue()->cq;
	struct ibv_cq_init_attr_ex larger = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_qp_init_attr qp = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_ah_attr ah = {.is_global = 1, .port_num = 1, .grh.hop_limit = 64};
	const char *kind = step->words[1];

	if (!strcmp(kind, "cq"))
		return result_of_pointer(ibv_create_cq(pd->context, 16, NULL, NULL, 0));
	if (!strcmp(kind, "cq_ex"))
		return result_of_pointer(ibv_create_cq_ex(pd->context, &larger));
	if (!strcmp(kind, "srq"))
		return result_of_pointer(ibv_create_srq(pd, &srq));
	if (!strcmp(kind, "mw"))
		return result_of_pointer(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	if (!strcmp(kind, "ah")) {
		need(!ibv_query_gid(pd->context, 1, 0, &ah.grh.dgid));
		return result_of_pointer(ibv_create_ah(pd, &ah));
	}
	need(!strcmp(kind, "qp"));
	qp.cap.max_send_wr = qp.cap.max_recv_wr = 4;
	qp.cap.max_send_sge = qp.cap.max_recv_sge = 1;
	return result_of_pointer(ibv_create_qp(pd, &qp));
}

/* resize: the completion queue of the queue pair */
static int do_resize(const struct step *step)
{
	(void)step;
	return ibv_resize_cq(queue()->cq, 32);
}

/* After anything but success the queue pair is of no more use. */
static int completion(int status)
{
	if (status)
		end_queue();
	return status > 0 ? COMPLETION + status : status ? WRONG : 0;
}

/* Of a number of bytes. */
struct transfer {
	struct range near, far;
	size_t n;
};

static struct transfer transfer_of(const struct step *step)
{
	struct transfer it = {.near = range_of(step->words[1]),
			      .far = range_of(step->words[2])};

	it.n = it.near.n < it.far.n ? it.near.n : it.far.n;
	if (step->n > 3 && it.n > number_of(step->words[3])) {
		size_t at = random_below(it.n - number_of(step->words[3]) + 1);

		it.n = number_of(step->words[3]);
		it.near.p += at;
		it.far.p += at;
	}
	return it;
}

static int move(const struct transfer *it, enum ibv_wr_opcode opcode)
{
	return rdma_move(queue(), opcode, it->near.p + it->near.thing->shift,
			 it->near.thing->lkey, it->far.p + it->far.thing->shift,
			 it->far.thing->rkey, it->n);
}

static uint64_t next_seed(void)
{
	static _Atomic uint64_t seed;

	return ++seed;
}

/* What is refused must not arrive. */
static int outcome(int status, const struct range *at, size_t n, uint64_t seed)
{
	bool has_arrived = !rdma_wrong(at->p, n, seed);

	return status && !has_arrived ? completion(status) : result_of(!status && has_arrived);
}

static int write_other(const struct transfer *it)
{
	uint64_t seed = next_seed();

	if (!it->near.thing->p)
		return EFAULT;
	rdma_fill(it->near.p, it->n, seed);
	return outcome(move(it, IBV_WR_RDMA_WRITE), &it->far, it->n, seed);
}

static int read_other(const struct transfer *it)
{
	uint64_t seed = next_seed();

	rdma_fill(it->far.p, it->n, seed);
	memset(it->near.p, 0, it->n);
	return outcome(move(it, IBV_WR_RDMA_READ), &it->near, it->n, seed);
}

/* write FROM TO [BYTES]: other words each time, which must arrive; of so many bytes anywhere in
 * both */
static int do_write(const struct step *step)
{
	struct transfer it = transfer_of(step);

	return write_other(&it);
}

/* read TO FROM [BYTES] */
static int do_read(const struct step *step)
{
	struct transfer it = transfer_of(step);

	return read_other(&it);
}

/* send A B [BYTES]: there with a write, and back with a read, by keys of any kind */
static int do_send(const struct step *step)
{
	int result = do_write(step);

	return result ? result : do_read(step);
}

/* sweep A B: so with a page at both ends of A, and at each multiple of 2 MiB, half of it on
 * either side */
static int do_sweep(const struct step *step)
{
	const uintptr_t border = 2 * MIB, half = 2 * KIB;
	struct transfer it = transfer_of(step);
	char *last;
	int result;

	it.n = it.n < 2 * half ? it.n : 2 * half;
	last = it.near.p + it.near.n - it.n;
	for (;;) {
		uintptr_t next = ((uintptr_t)it.near.p + half) / border * border + border -
				 half;

		result = write_other(&it);
		if (!result)
			result = read_other(&it);
		if (result || it.near.p == last)
			return result;
		it.near.p = next < (uintptr_t)last ? (char *)next : last;
	}
}

/* atomic A B: adds 1 to a word */
static int do_atomic(const struct step *step)
{
	struct range near = range_of(step->words[1]), far = range_of(step->words[2]);
	uint64_t before = *(uint64_t *)far.p;
	struct ibv_sge sge = {(uintptr_t)near.p, 8, near.thing->lkey};
	struct ibv_send_wr *bad, wr = {
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.atomic = {(uintptr_t)far.p, 1, 0, far.thing->rkey},
				 };
	int status;

	need(!ibv_post_send(queue()->qp, &wr, &bad));
	status = rdma_wait(queue());
	return *(uint64_t *)far.p == before + !status ? completion(status) : WRONG;
}

/* --- memory regions ---------------------------------------------------------------------- */

static bool describes(const struct ibv_mr *mr, const struct range *range,
		      const struct ibv_pd *pd)
{
	return mr->addr == range->p && mr->length == range->n && mr->pd == pd &&
	       mr->context == pd->context;
}

static void take_over(struct thing *it, struct ibv_mr *mr)
{
	it->mr = mr;
	it->was = *mr;
	it->p = mr->addr;
	it->n = mr->length;
	it->lkey = mr->lkey;
	it->rkey = mr->rkey;
}

static int of_mr(const struct step *step, struct ibv_mr *mr, const struct range *range)
{
	if (!mr)
		return errno;
	step->it->mr = mr;
	if (are_old)
		return 0;
	take_over(step->it, mr);
	return result_of(describes(mr, range, pd_in_use()));
}

/* reg RANGE [RIGHTS] */
static int do_reg(const struct step *step)
{
	struct range range = range_of(step->words[1]);
	unsigned rights = rights_of(step, 2);

	/* As the macro does. */
	if (rights & IBV_ACCESS_OPTIONAL_RANGE)
		return of_mr(step,
			     ibv_reg_mr_iova2(pd_in_use(), range.p, range.n, (uintptr_t)range.p,
					      rights),
			     &range);
	return of_mr(step, in_use()->reg_mr(pd_in_use(), range.p, range.n, (int)rights),
		     &range);
}

/* cached RANGE: the one of this address and length that was made first, as by a cache that is
 * not told of free() */
static int do_cached(const struct step *step)
{
	static struct ibv_mr *cached[4096];
	static size_t n_cached;
	struct range range = range_of(step->words[1]);
	int error;

	for (size_t i = 0; i < n_cached; i++)
		if (cached[i]->addr == range.p && cached[i]->length == range.n) {
			counts.hits++;
			return of_mr(step, cached[i], &range);
		}
	need(n_cached < sizeof cached / sizeof *cached);
	error = do_reg(step);
	cached[n_cached++] = step->it->mr;
	return error;
}

/* iova RANGE [ADDRESS]: for the adapter */
static int do_iova(const struct step *step)
{
	struct range range = range_of(step->words[1]);
	uintptr_t at = step->n > 2 ? number_of(step->words[2]) : (uintptr_t)range.p;

	return of_mr(step,
		     in_use()->reg_mr_iova(pd_in_use(), range.p, range.n, at, RDMA_ACCESS),
		     &range);
}

/* iova2 RANGE [SHIFT] */
static int do_iova2(const struct step *step)
{
	struct range range = range_of(step->words[1]);

	step->it->shift = step->n > 2 ? number_of(step->words[2]) : 0;
	return of_mr(step,
		     ibv_reg_mr_iova2(pd_in_use(), range.p, range.n,
				      (uintptr_t)range.p + step->it->shift, RDMA_ACCESS),
		     &range);
}

/* rereg MR [to RANGE] [pd PD] [rights RIGHTS] [flags N] */
static int do_rereg(const struct step *step)
{
	struct thing *it = thing_of(step->words[1]);
	struct range range = {.n = 0};
	struct ibv_pd *pd = NULL;
	int flags = 0, rights = 0, error;

	for (int i = 2; i + 1 < step->n; i += 2) {
		const char *word = step->words[i], *value = step->words[i + 1];

		if (!strcmp(word, "to")) {
			flags |= IBV_REREG_MR_CHANGE_TRANSLATION;
			range = range_of(value);
		} else if (!strcmp(word, "pd")) {
			flags |= IBV_REREG_MR_CHANGE_PD;
			pd = thing_of(value)->pd;
		} else if (!strcmp(word, "flags")) {
			flags ^= (int)number_of(value);
		} else {
			flags |= IBV_REREG_MR_CHANGE_ACCESS;
			rights = (int)rights_of(step, i + 1);
		}
	}
	error = in_use()->rereg_mr(it->mr, flags, pd, range.p, range.n, rights);
	if (!error)
		take_over(it, it->mr);
	return error;
}

/* dereg MR… */
static int do_dereg(const struct step *step)
{
	int result = 0;

	for (int i = 1; i < step->n && !result; i++) {
		struct ibv_mr *mr = thing_of(step->words[i])->mr;

		result = mr ? in_use()->dereg_mr(mr) : EINVAL;
	}
	return result;
}

/* is-of MR RANGE: in the domain in use */
static int do_is_of(const struct step *step)
{
	struct range range = range_of(step->words[2]);

	return result_of(describes(thing_of(step->words[1])->mr, &range, pd_in_use()));
}

/* ask MR [RIGHTS [RANGE]]: whether the keys serve that, by test/lab/providers; see oracle.h */
static int do_ask(const struct step *step)
{
	const struct thing *it = thing_of(step->words[1]);
	struct range range = range_of(step->words[step->n > 3 ? 3 : 1]);

	return it->mr ? ask(it->mr, range.p, range.n, rights_of(step, 2) & 0x1f) : EINVAL;
}

/* serves MR PD: the same of a key that may be of no use */
static int do_serves(const struct step *step)
{
	const struct thing *it = thing_of(step->words[1]);

	return oracle(thing_of(step->words[2])->pd, it->lkey, it->p, it->n, RDMA_ACCESS);
}

/* keys MR RANGE [lkey]: the same keys, for that memory; with a word a peer has the lkey */
static int do_keys(const struct step *step)
{
	const struct thing *of = thing_of(step->words[1]);
	struct range range = range_of(step->words[2]);

	step->it->p = range.p;
	step->it->n = range.n;
	step->it->lkey = of->lkey;
	step->it->rkey = step->n > 3 ? of->lkey : of->rkey;
	return 0;
}

/* same MR: its structure is as it was when it was registered */
static int do_same(const struct step *step)
{
	const struct thing *it = thing_of(step->words[1]);

	return result_of(!memcmp(it->mr, &it->was, sizeof it->was));
}

/* unlike A B: neither their structures nor their keys are the same */
static int do_unlike(const struct step *step)
{
	const struct thing *a = thing_of(step->words[1]), *b = thing_of(step->words[2]);

	return result_of(a->mr != b->mr && a->lkey != b->lkey && a->rkey != b->rkey);
}

/* --- memory windows ------------------------------------------------------------------------
 */

/* window TYPE MR: bound to all of it, for remote writes */
static int do_window(const struct step *step)
{
	struct thing *of = thing_of(step->words[2]), *it = step->it;
	bool is_first = number_of(step->words[1]) == 1;
	struct ibv_mw_bind_info info = {of->mr, (uintptr_t)of->p, of->n,
					IBV_ACCESS_REMOTE_WRITE};
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED, .bind_info = info};
	struct ibv_send_wr *bad, wr = {
					 .opcode = IBV_WR_BIND_MW,
					 .send_flags = IBV_SEND_SIGNALED,
				 };
	int error;

	it->mw = ibv_alloc_mw(pd_in_use(), is_first ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	if (!it->mw)
		return errno;
	it->p = of->p;
	it->n = of->n;
	wr.bind_mw.mw = it->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(it->mw->rkey);
	wr.bind_mw.bind_info = info;
	error = is_first ? ibv_bind_mw(queue()->qp, it->mw, &bind)
			 : ibv_post_send(queue()->qp, &wr, &bad);
	it->rkey = is_first ? it->mw->rkey : wr.bind_mw.rkey;
	return error ? error : completion(rdma_wait(queue()));
}

static int do_unwindow(const struct step *step)
{
	return ibv_dealloc_mw(thing_of(step->words[1])->mw);
}

static int do_fork_init(const struct step *step)
{
	(void)step;
	return ibv_fork_init();
}

const struct command verbs_commands[] = {
	{"open", do_open},
	{"close", do_close},
	{"pd", do_pd},
	{"use", do_use},
	{"dealloc", do_dealloc},
	{"seen", do_seen},
	{"seen-again", do_seen_again},
	{"import", do_import},
	{"import-pd", do_import_pd},
	{"unimport", do_unimport},
	{"qp", do_qp},
	{"unqp", do_unqp},
	{"make", do_make},
	{"resize", do_resize},
	{"write", do_write},
	{"read", do_read},
	{"send", do_send},
	{"sweep", do_sweep},
	{"atomic", do_atomic},
	{"reg", do_reg},
	{"cached", do_cached},
	{"iova", do_iova},
	{"iova2", do_iova2},
	{"rereg", do_rereg},
	{"dereg", do_dereg},
	{"is-of", do_is_of},
	{"ask", do_ask},
	{"serves", do_serves},
	{"keys", do_keys},
	{"same", do_same},
	{"unlike", do_unlike},
	{"window", do_window},
	{"unwindow", do_unwindow},
	{"find", do_find},
	{"fork-init", do_fork_init},
	{NULL, NULL},
};
