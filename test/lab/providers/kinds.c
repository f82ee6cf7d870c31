// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What each driver answers: figures of some real adapter where its provider computes with them.
 * Most providers want a number for each object, and those that want none do not read it.
 */
#include <linux/kernel.h>
#include <rdma/bnxt_re-abi.h>
#include <rdma/cxgb4-abi.h>
#include <rdma/efa-abi.h>
#include <rdma/erdma-abi.h>
#include <rdma/hns-abi.h>
#include <rdma/irdma-abi.h>
#include <rdma/mlx4-abi.h>
#include <rdma/mlx5-abi.h>
#include <rdma/ocrdma-abi.h>
#include <rdma/qedr-abi.h>

#include "fake.h"

/* A name that no header of Linux 6.1 has. */
#define DRIVER_MANA ((enum rdma_driver_id)20)

/* The answers to a call. */
#define BYTES(call, object) [call] = {.bytes = &(object), .size = sizeof(object)}
#define NUMBERED_BYTES(call, object, member) \
	[call] = {.bytes = &(object),        \
		  .size = sizeof(object),    \
		  .is_numbered = true,       \
		  .number_at = offsetof(typeof(object), member)}
#define NUMBER(call, type, member) \
	[call] = {.is_numbered = true, .number_at = offsetof(type, member)}
#define FIRST(call)  [call] = {.is_numbered = true}
#define FIRST_OF_ALL FIRST(PD), FIRST(CQ), FIRST(QP), FIRST(SRQ), FIRST(REGION)

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

static const struct mlx4_ib_alloc_ucontext_resp mlx4_context = {
	.dev_caps = MLX4_USER_DEV_CAP_LARGE_CQE,
	.qp_tab_size = 1 << 17,
	.bf_reg_size = 512,
	.bf_regs_per_page = 8,
	.cqe_size = 64,
};

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

static const struct bnxt_re_uctx_resp bnxt_context = {
	.dev_id = 1,
	.max_qp = 1 << 16,
	.pg_size = PAGE_SIZE,
	.cqe_sz = 32,
	.max_cqd = 1 << 18,
	.comp_mask = BNXT_RE_UCNTX_CMASK_HAVE_CCTX,
	.chip_id0 = 0x1750,
};
static const struct bnxt_re_pd_resp bnxt_pd = {.dpi = 1, .dbr = PAGE_SIZE};

static const struct hns_roce_ib_alloc_ucontext_resp hns_context = {
	.qp_tab_size = 1 << 16, .cqe_size = 64, .srq_tab_size = 1 << 16};

static const struct erdma_uresp_alloc_ctx erdma_context = {
	.dev_id = 1, .sdb = PAGE_SIZE, .rdb = PAGE_SIZE, .cdb = PAGE_SIZE};

static const struct qedr_alloc_ucontext_resp qedr_context = {.db_pa = PAGE_SIZE,
							     .db_size = 1 << 16,
							     .max_send_wr = 4096,
							     .max_recv_wr = 4096,
							     .max_srq_wr = 4096,
							     .sges_per_send_wr = 4,
							     .sges_per_recv_wr = 4,
							     .sges_per_srq_wr = 4,
							     .max_cqes = 1 << 16};

static const struct c4iw_alloc_ucontext_resp cxgb4_context = {.status_page_key = PAGE_SIZE,
							      .status_page_size = PAGE_SIZE};

static const struct ocrdma_alloc_ucontext_resp ocrdma_context = {.wqe_size = 256,
								 .rqe_size = 128,
								 .max_inline_data = 64,
								 .ah_tbl_page = PAGE_SIZE,
								 .ah_tbl_len = PAGE_SIZE};

/*
 * Of pvrdma, which takes it modulo 1 << 16, and mthca: the size of the table of queue pairs,
 * and of mthca also that of a doorbell page.
 */
static const u32 table_context[2] = {1 << 15, 4096};

/* With the answers of its driver; mlx5 alone has methods of its own. */
#define ADAPTER_OF(ib, its_name, id, version, pci_vendor, pci_device, ...)                   \
	{                                                                                    \
		.is_infiniband = (ib), .name = (its_name), .driver = (id), .abi = (version), \
		.vendor = (pci_vendor), .device = (pci_device), .answers = {__VA_ARGS__},    \
		.methods = (id) == RDMA_DRIVER_MLX5 ? fake_mlx5_methods : NULL               \
	}
#define IB_ADAPTER(...) ADAPTER_OF(true, __VA_ARGS__)
#define ADAPTER(...)	ADAPTER_OF(false, __VA_ARGS__)

/* Providers choose a device by the driver's id, hns and mthca by its PCI ids. */
const struct kind fake_kinds[] = {
	IB_ADAPTER("mlx5", RDMA_DRIVER_MLX5, 1, 0x15b3, 0x1017, BYTES(CONTEXT, mlx5_context),
		   BYTES(DEVICE, mlx5_device), NUMBERED_BYTES(MODIFY, mlx5_modify, dctn),
		   NUMBER(PD, struct mlx5_ib_alloc_pd_resp, pdn),
		   NUMBER(CQ, struct mlx5_ib_create_cq_resp, cqn),
		   NUMBER(SRQ, struct mlx5_ib_create_srq_resp, srqn)),
	IB_ADAPTER("mlx4", RDMA_DRIVER_MLX4, 4, 0x15b3, 0x1007, FIRST_OF_ALL,
		   BYTES(CONTEXT, mlx4_context)),
	ADAPTER("efa", RDMA_DRIVER_EFA, 1, 0x1d0f, 0xefa1, BYTES(CONTEXT, efa_context),
		BYTES(DEVICE, efa_device), NUMBER(PD, struct efa_ibv_alloc_pd_resp, pdn),
		NUMBERED_BYTES(CQ, efa_cq, cq_idx), BYTES(QP, efa_qp)),
	IB_ADAPTER("irdma", RDMA_DRIVER_IRDMA, 5, 0x8086, 0x1592, BYTES(CONTEXT, irdma_context),
		   FIRST(PD), NUMBERED_BYTES(CQ, irdma_cq, cq_id),
		   NUMBERED_BYTES(QP, irdma_qp, qp_id)),
	IB_ADAPTER("bnxt_re", RDMA_DRIVER_BNXT_RE, 1, 0x14e4, 0x1750,
		   BYTES(CONTEXT, bnxt_context), NUMBERED_BYTES(PD, bnxt_pd, pdid), FIRST(CQ),
		   FIRST(QP), FIRST(SRQ)),
	IB_ADAPTER("hns", RDMA_DRIVER_HNS, 1, 0x19e5, 0xa222, BYTES(CONTEXT, hns_context),
		   FIRST(PD), FIRST(CQ), FIRST(SRQ)),
	IB_ADAPTER("erdma", RDMA_DRIVER_ERDMA, 1, 0x1ded, 0x107f, FIRST_OF_ALL,
		   BYTES(CONTEXT, erdma_context)),
	IB_ADAPTER("qedr", RDMA_DRIVER_QEDR, 8, 0x1077, 0x1656, BYTES(CONTEXT, qedr_context),
		   FIRST(PD), FIRST(QP), FIRST(SRQ)),
	IB_ADAPTER("cxgb4", RDMA_DRIVER_CXGB4, 3, 0x1425, 0x6401, BYTES(CONTEXT, cxgb4_context),
		   FIRST(PD)),
	IB_ADAPTER("siw", RDMA_DRIVER_SIW, 1, 0x626d, 1, FIRST_OF_ALL),
	IB_ADAPTER("ocrdma", RDMA_DRIVER_OCRDMA, 2, 0x10df, 0x0720,
		   BYTES(CONTEXT, ocrdma_context),
		   NUMBER(PD, struct ocrdma_alloc_pd_uresp, id)),
	IB_ADAPTER("vmw_pvrdma", RDMA_DRIVER_VMW_PVRDMA, 3, 0x15ad, 0x0820, FIRST_OF_ALL,
		   BYTES(CONTEXT, table_context)),
	IB_ADAPTER("mthca", RDMA_DRIVER_MTHCA, 1, 0x15b3, 0x6282, FIRST_OF_ALL,
		   BYTES(CONTEXT, table_context)),
	IB_ADAPTER("hfi1", RDMA_DRIVER_HFI1, 2, 0x8086, 0x24f0),
	IB_ADAPTER("qib", RDMA_DRIVER_QIB, 2, 0x1077, 0x7322),
	IB_ADAPTER("mana", DRIVER_MANA, 1, 0x1414, 0x00ba, FIRST_OF_ALL),
};
const size_t fake_n_kinds = ARRAY_SIZE(fake_kinds);
