/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shared by the verbs programs of the lab tests: one reliable queue pair that is connected to
 * itself, so that a process can be both sides of an RDMA write or read, and a fill pattern that
 * differs for every seed. If anything cannot be set up, the program ends with status 2.
 */
#ifndef RDMA_H
#define RDMA_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "wrong.h"

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

#define RDMA_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

struct rdma {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

/* For what must hold before anything can be tried. */
#define need(condition) ((condition) ? (void)0 : rdma_give_up(#condition, __FILE__, __LINE__))

_Noreturn static inline void rdma_give_up(const char *what, const char *file, int line)
{
	fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, strerror(errno));
	exit(2);
}

static inline double rdma_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* What a program tries, by the name that its first argument gives. */
struct rdma_case {
	const char *name;
	void (*run)(void);
};

#define rdma_run(cases, argc, argv) \
	rdma_run_case(cases, sizeof(cases) / sizeof *(cases), argc, argv)

static inline void rdma_run_case(const struct rdma_case *cases, size_t n, int argc, char **argv)
{
	size_t i;

	need(argc > 1);
	for (i = 0; i < n && strcmp(argv[1], cases[i].name); i++)
		;
	need(i < n);
	cases[i].run();
}

/* The first device there is. */
static inline struct ibv_context *rdma_open(void)
{
	struct ibv_device **devices;
	struct ibv_context *context;

	need((devices = ibv_get_device_list(NULL)) && devices[0]);
	need((context = ibv_open_device(devices[0])));
	ibv_free_device_list(devices);
	return context;
}

static inline void rdma_to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = RDMA_ACCESS | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
	};

	need(!ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS));
}

/* The peer is on the same device: its address is that of this one. */
static inline void rdma_to_ready(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh.hop_limit = 64},
	};
	struct ibv_qp_attr send = {
		.qp_state = IBV_QPS_RTS,
		.timeout = 16, /* a quarter of a second */
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4,
	};

	need(!ibv_query_gid(qp->context, 1, 0, &receive.ah_attr.grh.dgid));
	need(!ibv_modify_qp(qp, &receive,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER));
	need(!ibv_modify_qp(qp, &send,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Makes a queue pair in the protection domain, for rdma_to_ready(). */
static inline void rdma_make(struct rdma *rdma, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};

	need(pd);
	rdma->pd = pd;
	need((rdma->cq = ibv_create_cq(pd->context, 16, NULL, NULL, 0)));
	attr.send_cq = attr.recv_cq = rdma->cq;
	need((rdma->qp = ibv_create_qp(pd, &attr)));
	rdma_to_init(rdma->qp);
}

/* Makes one that is ready to talk to itself. */
static inline void rdma_connect(struct rdma *rdma, struct ibv_pd *pd)
{
	rdma_make(rdma, pd);
	rdma_to_ready(rdma->qp, rdma->qp->qp_num);
}

/* The protection domain stays. */
static inline void rdma_disconnect(struct rdma *rdma)
{
	need(!ibv_destroy_qp(rdma->qp));
	need(!ibv_destroy_cq(rdma->cq));
}

/* Waits for one completion; its status, or -1 after half a minute. */
static inline int rdma_wait(struct rdma *rdma)
{
	double deadline = rdma_now() + 30;
	struct ibv_wc wc;
	int n;

	do {
		n = ibv_poll_cq(rdma->cq, 1, &wc);
		if (n)
			return n > 0 ? (int)wc.status : -1;
	} while (rdma_now() < deadline);
	return -1;
}

/*
 * Whether the status says that the far side has refused. Where a queue pair is its own peer,
 * soft-RoCE of Linux 6.12 fails it before the answer is back, so that the request is flushed.
 */
static inline bool rdma_is_refused(int status)
{
	return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_WR_FLUSH_ERR;
}

/*
 * Moves [local] from or to [remote], in messages any device can take. Returns an
 * enum ibv_wc_status; after anything but success the queue pair is of no more use.
 */
static inline int rdma_move(struct rdma *rdma, enum ibv_wr_opcode opcode, void *local,
			    uint32_t lkey, void *remote, uint32_t rkey, size_t n_bytes)
{
	const size_t most = 4 * MIB;
	int status = IBV_WC_SUCCESS;

	for (size_t at = 0; at < n_bytes && !status; at += most) {
		size_t n = n_bytes - at < most ? n_bytes - at : most;
		struct ibv_sge sge = {(uintptr_t)local + at, (uint32_t)n, lkey};
		struct ibv_send_wr *bad, wr = {
						 .sg_list = &sge,
						 .num_sge = 1,
						 .opcode = opcode,
						 .send_flags = IBV_SEND_SIGNALED,
						 .wr.rdma = {(uintptr_t)remote + at, rkey},
					 };

		need(!ibv_post_send(rdma->qp, &wr, &bad));
		status = rdma_wait(rdma);
	}
	return status;
}

static inline int rdma_write(struct rdma *rdma, void *from, uint32_t lkey, void *to,
			     uint32_t rkey, size_t n_bytes)
{
	return rdma_move(rdma, IBV_WR_RDMA_WRITE, from, lkey, to, rkey, n_bytes);
}

static inline int rdma_read(struct rdma *rdma, void *to, uint32_t lkey, void *from,
			    uint32_t rkey, size_t n_bytes)
{
	return rdma_move(rdma, IBV_WR_RDMA_READ, to, lkey, from, rkey, n_bytes);
}

static inline void rdma_fill(void *to, size_t n_bytes, uint64_t seed)
{
	wrong_fill(to, n_bytes, seed);
}

/* How many words differ from the pattern, the rest at the end counting as one. */
static inline size_t rdma_wrong(const void *at, size_t n_bytes, uint64_t seed)
{
	const char *p = at;
	size_t wrong = 0;
	uint64_t word;

	for (size_t i = 0; i < n_bytes / 8; i++) {
		word = wrong_word(seed, i);
		wrong += memcmp(p + 8 * i, &word, 8) != 0;
	}
	word = wrong_word(seed, n_bytes / 8);
	return wrong + (memcmp(p + n_bytes / 8 * 8, &word, n_bytes % 8) != 0);
}

/* Whether what is written to one buffer, each time other words, arrives in another one. */
static inline bool rdma_sends(struct rdma *rdma, void *from, uint32_t lkey, void *to,
			      uint32_t rkey, size_t n_bytes)
{
	static uint64_t n_sent;
	uint64_t seed = __atomic_add_fetch(&n_sent, 1, __ATOMIC_RELAXED);

	rdma_fill(from, n_bytes, seed);
	return !rdma_write(rdma, from, lkey, to, rkey, n_bytes) &&
	       !rdma_wrong(to, n_bytes, seed);
}

/* Memory that is not of the heap. */
static inline void *rdma_map(size_t n_bytes)
{
	void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	need(p != MAP_FAILED);
	return p;
}

/* A small generator, so that "random" is the same on every machine. */
static inline uint64_t rdma_random(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15u;
	uint64_t z = *state;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* A size from 1 to 2^log2_most, every magnitude as likely as any other. */
static inline size_t rdma_random_size(uint64_t *state, unsigned log2_most)
{
	size_t magnitude = (size_t)1 << rdma_random(state) % (log2_most + 1);

	return 1 + rdma_random(state) % magnitude;
}

#endif
