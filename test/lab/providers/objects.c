// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Everything but memory regions: contexts and what they map, and objects that only have
 * numbers. */
#include <linux/mm.h>
#include <linux/version.h>
#include <rdma/uverbs_std_types.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include "fake.h"

/* The size of a driver's own structure, whose first member must be the kernel's. */
#define OBJECT(type)                 \
	struct fake_##type {         \
		struct ib_##type ib; \
	}
OBJECT(ah);
OBJECT(cq);
OBJECT(mw);
OBJECT(pd);
OBJECT(qp);
OBJECT(srq);
OBJECT(ucontext);
OBJECT(xrcd);

/* ---- device and port ---- */

static int query_device(struct ib_device *ib, struct ib_device_attr *attr,
			struct ib_udata *udata)
{
	attr->fw_ver = (u64)16 << 32 | 32 << 16 | 1010;
	attr->sys_image_guid = ib->node_guid;
	attr->vendor_id = adapter_of(ib)->kind->vendor;
	attr->vendor_part_id = adapter_of(ib)->kind->device;
	attr->max_mr_size = ~0ull;
	attr->page_size_cap = 0xfffff000;
	attr->device_cap_flags = IB_DEVICE_MEM_WINDOW | IB_DEVICE_MEM_WINDOW_TYPE_2B |
				 IB_DEVICE_XRC;
	attr->kernel_cap_flags = IBK_ON_DEMAND_PAGING;
	attr->atomic_cap = IB_ATOMIC_HCA;
	attr->odp_caps.general_caps = IB_ODP_SUPPORT | IB_ODP_SUPPORT_IMPLICIT;
	attr->odp_caps.per_transport_caps.rc_odp_caps = IB_ODP_SUPPORT_SEND |
							IB_ODP_SUPPORT_WRITE;
	attr->max_mr = 1 << 20;
	attr->max_qp = attr->max_cq = attr->max_cqe = attr->max_mw = 1 << 16;
	attr->max_pd = attr->max_ah = attr->max_srq = 1 << 16;
	attr->max_qp_wr = attr->max_srq_wr = 1 << 13;
	attr->max_send_sge = attr->max_recv_sge = attr->max_sge_rd = 16;
	attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = attr->max_res_rd_atom = 16;
	attr->max_srq_sge = 8;
	attr->max_pkeys = 1;
	return adapter_answer(ib, DEVICE, udata);
}

static int query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr)
{
	attr->state = IB_PORT_ACTIVE;
	attr->max_mtu = attr->active_mtu = IB_MTU_4096;
	attr->gid_tbl_len = attr->pkey_tbl_len = 1;
	attr->port_cap_flags = IB_UVERBS_PCF_CM_SUP;
	attr->max_msg_sz = 1u << 30;
	attr->lid = port + ib->index;
	attr->sm_lid = 1;
	attr->active_width = IB_WIDTH_4X;
	attr->active_speed = IB_SPEED_HDR;
	attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	return 0;
}

static int get_port_immutable(struct ib_device *ib, u32 port,
			      struct ib_port_immutable *immutable)
{
	immutable->gid_tbl_len = immutable->pkey_tbl_len = 1;
	immutable->core_cap_flags = adapter_of(ib)->kind->is_infiniband ? RDMA_CORE_CAP_PROT_IB
									: 0;
	return 0;
}

static enum rdma_link_layer get_link_layer(struct ib_device *ib, u32 port)
{
	return adapter_of(ib)->kind->is_infiniband ? IB_LINK_LAYER_INFINIBAND
						   : IB_LINK_LAYER_UNSPECIFIED;
}

static int query_gid(struct ib_device *ib, u32 port, int index, union ib_gid *gid)
{
	gid->global.subnet_prefix = cpu_to_be64(0xfe80000000000000);
	gid->global.interface_id = ib->node_guid;
	return 0;
}

static int query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey)
{
	*pkey = 0xffff;
	return 0;
}

/* ---- contexts ---- */

static int alloc_ucontext(struct ib_ucontext *context, struct ib_udata *udata)
{
	return adapter_answer(context->device, CONTEXT, udata);
}

static void dealloc_ucontext(struct ib_ucontext *context)
{
}

static void disassociate_ucontext(struct ib_ucontext *context)
{
}

/* A provider that imports a context asks for what alloc_ucontext() has answered. */
static int query_ucontext(struct ib_ucontext *context, struct uverbs_attr_bundle *attrs)
{
	char out[ANSWER_SIZE] = {};
	size_t size = adapter_fill(adapter_of(context->device), CONTEXT, out);

	return uverbs_copy_to_struct_or_zero(attrs, MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, out,
					     size);
}

static vm_fault_t map_zeroes(struct vm_fault *fault)
{
	fault->page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	return fault->page ? 0 : VM_FAULT_OOM;
}

static const struct vm_operations_struct zeroes = {.fault = map_zeroes};

static int map(struct ib_ucontext *context, struct vm_area_struct *vma)
{
	vma->vm_ops = &zeroes;
	return 0;
}

/* ---- objects ---- */

/* What needs no answer. */
#define NOTHING_TO_DO(function, ...)     \
	static int function(__VA_ARGS__) \
	{                                \
		return 0;                \
	}
NOTHING_TO_DO(dealloc_pd, struct ib_pd *pd, struct ib_udata *udata)
NOTHING_TO_DO(destroy_cq, struct ib_cq *cq, struct ib_udata *udata)
NOTHING_TO_DO(destroy_qp, struct ib_qp *qp, struct ib_udata *udata)
NOTHING_TO_DO(modify_srq, struct ib_srq *srq, struct ib_srq_attr *attr,
	      enum ib_srq_attr_mask mask, struct ib_udata *udata)
NOTHING_TO_DO(query_srq, struct ib_srq *srq, struct ib_srq_attr *attr)
NOTHING_TO_DO(destroy_srq, struct ib_srq *srq, struct ib_udata *udata)
NOTHING_TO_DO(destroy_ah, struct ib_ah *ah, u32 flags)
NOTHING_TO_DO(alloc_xrcd, struct ib_xrcd *xrcd, struct ib_udata *udata)
NOTHING_TO_DO(dealloc_xrcd, struct ib_xrcd *xrcd, struct ib_udata *udata)
NOTHING_TO_DO(dealloc_mw, struct ib_mw *mw)

static int alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return adapter_answer(pd->device, PD, udata);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
static int create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
		     struct uverbs_attr_bundle *attrs)
{
	struct ib_udata *udata = &attrs->driver_udata;
#else
static int create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
		     struct ib_udata *udata)
{
#endif
	cq->cqe = roundup_pow_of_two(attr->cqe + 1) - 1;
	return adapter_answer(cq->device, CQ, udata);
}

static int resize_cq(struct ib_cq *cq, int cqe, struct ib_udata *udata)
{
	cq->cqe = cqe;
	return adapter_answer(cq->device, CQ, udata);
}

static int create_qp(struct ib_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	qp->qp_num = adapter_number(adapter_of(qp->device)) & 0xffffff;
	return adapter_answer(qp->device, QP, udata);
}

static int modify_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
		     struct ib_udata *udata)
{
	return adapter_answer(qp->device, MODIFY, udata);
}

static int query_qp(struct ib_qp *qp, struct ib_qp_attr *attr, int mask,
		    struct ib_qp_init_attr *init)
{
	attr->qp_state = IB_QPS_RTS;
	return 0;
}

static int create_srq(struct ib_srq *srq, struct ib_srq_init_attr *attr, struct ib_udata *udata)
{
	return adapter_answer(srq->device, SRQ, udata);
}

/* The answers of efa and irdma have two words. */
static int create_ah(struct ib_ah *ah, struct rdma_ah_init_attr *attr, struct ib_udata *udata)
{
	u32 words[2] = {1, adapter_number(adapter_of(ah->device))};
	size_t size = udata ? min(sizeof words, udata->outlen) : 0;

	return size ? ib_copy_to_udata(udata, words, size) : 0;
}

static int alloc_mw(struct ib_mw *mw, struct ib_udata *udata)
{
	mw->rkey = adapter_number(adapter_of(mw->device)) << 8;
	return 0;
}

const struct ib_device_ops fake_object_ops = {
	.owner = THIS_MODULE,
	.query_device = query_device,
	.query_port = query_port,
	.get_port_immutable = get_port_immutable,
	.get_link_layer = get_link_layer,
	.query_gid = query_gid,
	.query_pkey = query_pkey,
	.alloc_ucontext = alloc_ucontext,
	.dealloc_ucontext = dealloc_ucontext,
	.disassociate_ucontext = disassociate_ucontext,
	.query_ucontext = query_ucontext,
	.mmap = map,
	.alloc_pd = alloc_pd,
	.dealloc_pd = dealloc_pd,
	.create_cq = create_cq,
	.resize_cq = resize_cq,
	.destroy_cq = destroy_cq,
	.create_qp = create_qp,
	.modify_qp = modify_qp,
	.query_qp = query_qp,
	.destroy_qp = destroy_qp,
	.create_srq = create_srq,
	.modify_srq = modify_srq,
	.query_srq = query_srq,
	.destroy_srq = destroy_srq,
	.create_ah = create_ah,
	.create_user_ah = create_ah,
	.destroy_ah = destroy_ah,
	.alloc_xrcd = alloc_xrcd,
	.dealloc_xrcd = dealloc_xrcd,
	.alloc_mw = alloc_mw,
	.dealloc_mw = dealloc_mw,
	INIT_RDMA_OBJ_SIZE(ib_ah, fake_ah, ib),
	INIT_RDMA_OBJ_SIZE(ib_cq, fake_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_mw, fake_mw, ib),
	INIT_RDMA_OBJ_SIZE(ib_pd, fake_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_qp, fake_qp, ib),
	INIT_RDMA_OBJ_SIZE(ib_srq, fake_srq, ib),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, fake_ucontext, ib),
	INIT_RDMA_OBJ_SIZE(ib_xrcd, fake_xrcd, ib),
};
