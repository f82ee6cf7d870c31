/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What programs expect of an adapter beyond fake-ibverbs.c, with which it is linked: queue
 * pairs, each connected to itself or to another of the process, and registrations that make
 * memory resident, and fail where there is none. An RDMA write or read is a copy, made at once
 * if the keys permit it; with FAKE_PINS in the environment, of the pages that were registered
 * (fake-pins.c).
 */
#include <config.h>

#include "test/fake-verbs.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ /* glibc 2.35 */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#define PAGE	 ((uintptr_t)4096)
#define MOST_QPS 1024u /* at the same time */

struct fake_cq {
	struct ibv_cq cq;
	pthread_mutex_t lock;
	unsigned first, n, room;
	struct ibv_wc completions[];
};

struct fake_qp {
	struct ibv_qp qp;
	uint32_t peer;
	bool is_broken;
};

static _Atomic(struct fake_qp *) qps[MOST_QPS];

/* Linux before 5.14 cannot say whether there is such memory; io_uring takes what can be
 * written. */
int fake_adapter_pin(uint32_t lkey, void *addr, size_t length, unsigned access)
{
	bool writes = access & IBV_ACCESS_LOCAL_WRITE;
	uintptr_t start = (uintptr_t)addr & -PAGE;
	size_t n_bytes = ((uintptr_t)addr + length - start + PAGE - 1) & -PAGE;
	int error;

	if (madvise((void *)start, n_bytes,
		    writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) &&
	    errno != EINVAL)
		return EFAULT;
	error = fake_pins_add(lkey, start, n_bytes);
	return error == EOPNOTSUPP || (error == EFAULT && !writes) ? 0 : error;
}

/* One with nothing in it but zeroes; NULL, with errno, if there is no room. */
static void *new_object(size_t n_bytes)
{
	return fake_object_begin() ? calloc(1, n_bytes) : NULL;
}

/* --- completions --------------------------------------------------------------- */

PIN_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
					struct ibv_comp_channel *channel, int comp_vector)
{
	struct fake_cq *cq = new_object(sizeof *cq + (size_t)cqe * sizeof *cq->completions);

	if (!cq)
		return NULL;
	cq->cq.context = context;
	cq->cq.cq_context = cq_context;
	cq->cq.channel = channel;
	cq->room = (unsigned)cqe;
	pthread_mutex_init(&cq->lock, NULL);
	return &cq->cq;
}

PIN_EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	fake_object_end();
	return 0;
}

static void complete(struct ibv_cq *ibv_cq, const struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)ibv_cq;

	pthread_mutex_lock(&cq->lock);
	if (cq->n == cq->room)
		abort(); /* an adapter would lose it */
	cq->completions[(cq->first + cq->n++) % cq->room] = *wc;
	pthread_mutex_unlock(&cq->lock);
}

static int poll_cq(struct ibv_cq *ibv_cq, int most, struct ibv_wc *wcs)
{
	struct fake_cq *cq = (struct fake_cq *)ibv_cq;
	int n = 0;

	pthread_mutex_lock(&cq->lock);
	while (n < most && cq->n) {
		wcs[n++] = cq->completions[cq->first];
		cq->first = (cq->first + 1) % cq->room;
		cq->n--;
	}
	pthread_mutex_unlock(&cq->lock);
	return n;
}

/* --- queue pairs ---------------------------------------------------------------- */

PIN_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	static _Atomic uint32_t next;
	struct fake_qp *qp = new_object(sizeof *qp), *none;

	if (!qp)
		return NULL;
	qp->qp.context = pd->context;
	qp->qp.pd = pd;
	qp->qp.send_cq = attr->send_cq;
	qp->qp.recv_cq = attr->recv_cq;
	qp->qp.qp_type = attr->qp_type;
	do {
		none = NULL;
		qp->qp.qp_num = ++next;
	} while (!atomic_compare_exchange_strong(&qps[qp->qp.qp_num % MOST_QPS], &none, qp));
	fake_pd_use(pd, 1);
	return &qp->qp;
}

PIN_EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_DEST_QPN)
		((struct fake_qp *)qp)->peer = attr->dest_qp_num;
	return 0;
}

PIN_EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	qps[qp->qp_num % MOST_QPS] = NULL;
	fake_pd_use(qp->pd, -1);
	free(qp);
	fake_object_end();
	return 0;
}

static enum ibv_wc_status move(const struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	const struct fake_qp *peer = qps[qp->peer % MOST_QPS];
	const struct ibv_sge *local = wr->sg_list;
	void *near = (void *)(uintptr_t)local->addr;
	void *far = (void *)(uintptr_t)wr->wr.rdma.remote_addr;
	uint32_t far_key = fake_lkey_of(wr->wr.rdma.rkey);
	bool reads = wr->opcode == IBV_WR_RDMA_READ;

	if (qp->is_broken)
		return IBV_WC_WR_FLUSH_ERR;
	if (!peer || peer->qp.qp_num != qp->peer)
		return IBV_WC_RETRY_EXC_ERR;
	if (!fake_key_permits(local->lkey, reads ? IBV_ACCESS_LOCAL_WRITE : 0, qp->qp.pd, near,
			      local->length))
		return IBV_WC_LOC_PROT_ERR;
	if (!fake_key_permits(wr->wr.rdma.rkey,
			      reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE,
			      peer->qp.pd, far, local->length))
		return IBV_WC_REM_ACCESS_ERR;
	if (!(reads ? fake_pins_move(local->lkey, near, far_key, far, local->length)
		    : fake_pins_move(far_key, far, local->lkey, near, local->length)))
		return IBV_WC_GENERAL_ERR;
	return IBV_WC_SUCCESS;
}

static int post_send(struct ibv_qp *ibv_qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)ibv_qp;

	for (; wr; wr = wr->next) {
		struct ibv_wc wc = {.wr_id = wr->wr_id, .qp_num = ibv_qp->qp_num};

		*bad = wr;
		if ((wr->opcode != IBV_WR_RDMA_READ && wr->opcode != IBV_WR_RDMA_WRITE) ||
		    wr->num_sge != 1)
			return EINVAL;
		wc.status = move(qp, wr);
		wc.byte_len = wr->sg_list->length;
		qp->is_broken = wc.status != IBV_WC_SUCCESS;
		complete(ibv_qp->send_cq, &wc);
	}
	return 0;
}

/* --- other objects --------------------------------------------------------------- */

PIN_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return new_object(sizeof(struct ibv_srq));
}

PIN_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	return new_object(sizeof(struct ibv_ah));
}

/* A larger one takes a second place while it is made. */
PIN_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	if (!fake_object_begin())
		return errno;
	cq->cqe = cqe;
	fake_object_end();
	return 0;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw = new_object(sizeof *mw);

	if (mw)
		*mw = (struct ibv_mw){.context = pd->context, .pd = pd, .type = type};
	return mw;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	free(mw);
	fake_object_end();
	return 0;
}

/* It reaches all that the MR does. */
static int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	mw->rkey = bind->bind_info.mr->rkey;
	complete(qp->send_cq, &(struct ibv_wc){.qp_num = qp->qp_num});
	return 0;
}

/* --- devices --------------------------------------------------------------------- */

PIN_EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
			     union ibv_gid *gid)
{
	memset(gid, 0, sizeof *gid);
	return 0;
}

/* The descriptor becomes its own. */
PIN_EXPORT struct ibv_context *ibv_import_device(int fd)
{
	return close(fd) ? NULL : fake_context_new();
}

__attribute__((constructor)) static void install(void)
{
	fake_verbs.ops.poll_cq = poll_cq;
	fake_verbs.ops.post_send = post_send;
	fake_verbs.ops.alloc_mw = alloc_mw;
	fake_verbs.ops.dealloc_mw = dealloc_mw;
	fake_verbs.ops.bind_mw = bind_mw;
}
