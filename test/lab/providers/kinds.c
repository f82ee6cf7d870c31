// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What each driver answers: figures of some real adapter where its provider computes with them.
 * Most providers want a number for each object, and those that want none do not read it.
 */
#include <linux/kernel.h>
#include <rdma/efa-abi.h>
#include <rdma/irdma-abi.h>
#include <rdma/mlx5-abi.h>

#include "fake.h"

/* The answers to a call. */
#define BYTES(call, object) [call] = {.bytes = &(object), .size = sizeof(object)}
#define NUMBERED_BYTES(call, object, member) \
	[call] = {.bytes = &(object),        \
		  .size = sizeof(object),    \
		  .is_numbered = true,       \
		  .number_at = offsetof(typeof(object), member)}
#define NUMBER(call, type, member) \
	[call] = {.is_numbered = true, .number_at = offsetof(type, member)}
#define FIRST(call) [call] = {.is_numbered = true}

/* A kernel and an adapter that allocate doorbells on request, as since Linux 5.8. */
static const struct mlx5_ib_alloc_ucontext_resp mlx5_context = {
	.qp_tab_size = 1 << 17,
	.bf_reg_size = 512,
	.cache_line_size = 64,
	.max_sq_desc_sz = 1024,
	.max_rq_desc_sz = 512,
	.max_send_wqebb = 32768,
	.max_recv_wr = 32768,
	.max_srq_recv_wr = 32767,
	.num_ports = 1,
	.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET |
		     MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY |
		     MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_SQD2RTS |
		     MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_MKEY_UPDATE_TAG,
	.response_length = sizeof(struct mlx5_ib_alloc_ucontext_resp),
	.cqe_version = 1,
	.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE,
	.eth_min_inline = MLX5_USER_INLINE_MODE_L2,
	.log_uar_size = 12,
	.num_uars_per_page = 1,
	.num_dyn_bfregs = 512,
	.dump_fill_mkey = 0x1234,
};
static const struct mlx5_ib_query_device_resp mlx5_device = {
	.response_length = sizeof(struct mlx5_ib_query_device_resp)};
/* Of a target of dynamic connections. */
static const struct mlx5_ib_modify_qp_resp mlx5_modify = {
	.response_length = sizeof(struct mlx5_ib_modify_qp_resp)};

static const struct efa_ibv_alloc_ucontext_resp efa_context = {
	.cmds_supp_udata_mask = EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE |
				EFA_USER_CMDS_SUPP_UDATA_CREATE_AH,
	.sub_cqs_per_cq = 2,
	.inline_buf_size = 32,
	.max_llq_size = 1 << 16,
	.max_tx_batch = 16,
	.min_sq_wr = 16,
};
static const struct efa_ibv_create_cq_resp efa_cq = {.q_mmap_key = PAGE_SIZE,
						     .q_mmap_size = 4 << 20};
static const struct efa_ibv_create_qp_resp efa_qp = {
	.rq_mmap_key = PAGE_SIZE,
	.rq_db_mmap_key = PAGE_SIZE,
	.sq_db_mmap_key = PAGE_SIZE,
	.llq_desc_mmap_key = PAGE_SIZE,
	.rq_mmap_size = 4 << 20,
};
static const struct efa_ibv_ex_query_device_resp efa_device = {
	.max_sq_wr = 4096,
	.max_rq_wr = 8192,
	.max_sq_sge = 2,
	.max_rq_sge = 2,
	.max_rdma_size = 1 << 30,
	.device_caps = EFA_QUERY_DEVICE_CAPS_RDMA_READ | EFA_QUERY_DEVICE_CAPS_RNR_RETRY,
};

static const struct irdma_alloc_ucontext_resp irdma_context = {
	.max_pds = 1 << 14,
	.max_qps = 1 << 14,
	.wq_size = 1 << 14,
	.kernel_ver = 5,
	.max_hw_wq_frags = 13,
	.max_hw_read_sges = 13,
	.max_hw_inline = 220,
	.max_hw_rq_quanta = 2048 * 8,
	.max_hw_wq_quanta = 2048 * 8,
	.min_hw_cq_size = 4,
	.max_hw_cq_size = 1 << 20,
	.max_hw_sq_chunk = 256,
	.hw_rev = 2,
};
static const struct irdma_create_cq_resp irdma_cq = {.cq_size = 1024};
static const struct irdma_create_qp_resp irdma_qp = {.actual_sq_size = 512,
						     .actual_rq_size = 512};

/* With the answers of its driver; mlx5 alone has methods of its own. */
#define ADAPTER_OF(ib, its_name, id, version, pci_vendor, pci_device, ...)                   \
	{                                                                                    \
		.is_infiniband = (ib), .name = (its_name), .driver = (id), .abi = (version), \
		.vendor = (pci_vendor), .device = (pci_device), .answers = {__VA_ARGS__},    \
		.methods = (id) == RDMA_DRIVER_MLX5 ? fake_mlx5_methods : NULL               \
	}
#define IB_ADAPTER(...) ADAPTER_OF(true, __VA_ARGS__)
#define ADAPTER(...)	ADAPTER_OF(false, __VA_ARGS__)

/* Providers choose a device by the driver's id. */
const struct kind fake_kinds[] = {
	IB_ADAPTER("mlx5", RDMA_DRIVER_MLX5, 1, 0x15b3, 0x1017, BYTES(CONTEXT, mlx5_context),
		   BYTES(DEVICE, mlx5_device), NUMBERED_BYTES(MODIFY, mlx5_modify, dctn),
		   NUMBER(PD, struct mlx5_ib_alloc_pd_resp, pdn),
		   NUMBER(CQ, struct mlx5_ib_create_cq_resp, cqn),
		   NUMBER(SRQ, struct mlx5_ib_create_srq_resp, srqn)),
	ADAPTER("efa", RDMA_DRIVER_EFA, 1, 0x1d0f, 0xefa1, BYTES(CONTEXT, efa_context),
		BYTES(DEVICE, efa_device), NUMBER(PD, struct efa_ibv_alloc_pd_resp, pdn),
		NUMBERED_BYTES(CQ, efa_cq, cq_idx), BYTES(QP, efa_qp)),
	IB_ADAPTER("irdma", RDMA_DRIVER_IRDMA, 5, 0x8086, 0x1592, BYTES(CONTEXT, irdma_context),
		   FIRST(PD), NUMBERED_BYTES(CQ, irdma_cq, cq_id),
		   NUMBERED_BYTES(QP, irdma_qp, qp_id)),
};
const size_t fake_n_kinds = ARRAY_SIZE(fake_kinds);
