// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * mlx5's own methods: doorbell pages (UAR), DEVX commands, objects and memory, and what a
 * provider asks that imports a context or a protection domain. A DEVX command answers zeroes.
 */
#include <linux/slab.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/uverbs_std_types.h>
#include <rdma/uverbs_types.h>
#define UVERBS_MODULE_NAME fake_rdma
#include <rdma/uverbs_named_ioctl.h>

#include "fake.h"

/* What a method is given, and gives. */
#define HANDLE(attr, object, access) \
	UVERBS_ATTR_IDR(attr, object, UVERBS_ACCESS_##access, UA_MANDATORY)
#define VALUE_IN(attr, type)  UVERBS_ATTR_PTR_IN(attr, UVERBS_ATTR_TYPE(type), UA_MANDATORY)
#define VALUE_OUT(attr, type) UVERBS_ATTR_PTR_OUT(attr, UVERBS_ATTR_TYPE(type), UA_MANDATORY)
#define COMMAND_IN(attr) \
	UVERBS_ATTR_PTR_IN(attr, UVERBS_ATTR_MIN_SIZE(16), UA_MANDATORY, UA_ALLOC_AND_COPY)
#define COMMAND_OUT(attr) UVERBS_ATTR_PTR_OUT(attr, UVERBS_ATTR_MIN_SIZE(16), UA_MANDATORY)

static u32 new_number(struct uverbs_attr_bundle *attrs)
{
	return adapter_number(adapter_of(attrs->context->device));
}

static int tell(struct uverbs_attr_bundle *attrs, u16 attr, u32 value)
{
	return uverbs_copy_to(attrs, attr, &value, sizeof value);
}

static int forget(struct ib_uobject *uobject, enum rdma_remove_reason why,
		  struct uverbs_attr_bundle *attrs)
{
	return 0;
}

/* ---- doorbell pages ---- */

static int UVERBS_HANDLER(MLX5_IB_METHOD_UAR_OBJ_ALLOC)(struct uverbs_attr_bundle *attrs)
{
	struct ib_uobject *uobject = uverbs_attr_get_uobject(attrs,
							     MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
	u32 page = new_number(attrs);
	u64 offset = (u64)page << PAGE_SHIFT;
	int error;

	uobject->object = uobject;
	uverbs_finalize_uobj_create(attrs, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
	error = uverbs_copy_to(attrs, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &offset,
			       sizeof offset);
	error = error ?: tell(attrs, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, page);
	return error ?: tell(attrs, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, PAGE_SIZE);
}

DECLARE_UVERBS_NAMED_METHOD(MLX5_IB_METHOD_UAR_OBJ_ALLOC,
			    HANDLE(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_OBJECT_UAR, NEW),
			    UVERBS_ATTR_CONST_IN(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, u32,
						 UA_MANDATORY),
			    VALUE_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, u32),
			    VALUE_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, u32),
			    VALUE_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, u64));
DECLARE_UVERBS_NAMED_METHOD_DESTROY(MLX5_IB_METHOD_UAR_OBJ_DESTROY,
				    HANDLE(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE,
					   MLX5_IB_OBJECT_UAR, DESTROY));
DECLARE_UVERBS_NAMED_OBJECT(MLX5_IB_OBJECT_UAR, UVERBS_TYPE_ALLOC_IDR(forget),
			    &UVERBS_METHOD(MLX5_IB_METHOD_UAR_OBJ_ALLOC),
			    &UVERBS_METHOD(MLX5_IB_METHOD_UAR_OBJ_DESTROY));

/* ---- DEVX: commands and objects ---- */

/* An answer begins with status and syndrome, then comes an object's number. */
static int answer_command(struct uverbs_attr_bundle *attrs, u16 attr, u32 number)
{
	int length = uverbs_attr_get_len(attrs, attr), error;
	__be32 *out;

	if (length < 16)
		return -EINVAL;
	out = kzalloc(length, GFP_KERNEL);
	if (!out)
		return -ENOMEM;
	out[2] = cpu_to_be32(number);
	error = uverbs_copy_to(attrs, attr, out, length);
	kfree(out);
	return error;
}

static int UVERBS_HANDLER(MLX5_IB_METHOD_DEVX_OTHER)(struct uverbs_attr_bundle *attrs)
{
	return answer_command(attrs, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, 0);
}

static int UVERBS_HANDLER(MLX5_IB_METHOD_DEVX_QUERY_EQN)(struct uverbs_attr_bundle *attrs)
{
	return tell(attrs, MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, 1);
}

static int UVERBS_HANDLER(MLX5_IB_METHOD_DEVX_OBJ_CREATE)(struct uverbs_attr_bundle *attrs)
{
	struct ib_uobject *uobject = uverbs_attr_get_uobject(
		attrs, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE);

	uobject->object = uobject;
	uverbs_finalize_uobj_create(attrs, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE);
	return answer_command(attrs, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, new_number(attrs));
}

static int UVERBS_HANDLER(MLX5_IB_METHOD_DEVX_OBJ_QUERY)(struct uverbs_attr_bundle *attrs)
{
	return answer_command(attrs, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, 0);
}

static int UVERBS_HANDLER(MLX5_IB_METHOD_DEVX_OBJ_MODIFY)(struct uverbs_attr_bundle *attrs)
{
	return answer_command(attrs, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, 0);
}

DECLARE_UVERBS_NAMED_METHOD(MLX5_IB_METHOD_DEVX_OTHER,
			    COMMAND_IN(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN),
			    COMMAND_OUT(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT));
DECLARE_UVERBS_NAMED_METHOD(MLX5_IB_METHOD_DEVX_QUERY_EQN,
			    VALUE_IN(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, u32),
			    VALUE_OUT(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, u32));
DECLARE_UVERBS_GLOBAL_METHODS(MLX5_IB_OBJECT_DEVX, &UVERBS_METHOD(MLX5_IB_METHOD_DEVX_OTHER),
			      &UVERBS_METHOD(MLX5_IB_METHOD_DEVX_QUERY_EQN));

DECLARE_UVERBS_NAMED_METHOD(MLX5_IB_METHOD_DEVX_OBJ_CREATE,
			    HANDLE(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ,
				   NEW),
			    COMMAND_IN(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN),
			    COMMAND_OUT(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT));
DECLARE_UVERBS_NAMED_METHOD_DESTROY(MLX5_IB_METHOD_DEVX_OBJ_DESTROY,
				    HANDLE(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE,
					   MLX5_IB_OBJECT_DEVX_OBJ, DESTROY));
DECLARE_UVERBS_NAMED_METHOD(MLX5_IB_METHOD_DEVX_OBJ_QUERY,
			    HANDLE(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, UVERBS_IDR_ANY_OBJECT,
				   READ),
			    COMMAND_IN(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN),
			    COMMAND_OUT(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT));
DECLARE_UVERBS_NAMED_METHOD(MLX5_IB_METHOD_DEVX_OBJ_MODIFY,
			    HANDLE(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, UVERBS_IDR_ANY_OBJECT,
				   WRITE),
			    COMMAND_IN(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN),
			    COMMAND_OUT(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT));
DECLARE_UVERBS_NAMED_OBJECT(MLX5_IB_OBJECT_DEVX_OBJ, UVERBS_TYPE_ALLOC_IDR(forget),
			    &UVERBS_METHOD(MLX5_IB_METHOD_DEVX_OBJ_CREATE),
			    &UVERBS_METHOD(MLX5_IB_METHOD_DEVX_OBJ_DESTROY),
			    &UVERBS_METHOD(MLX5_IB_METHOD_DEVX_OBJ_QUERY),
			    &UVERBS_METHOD(MLX5_IB_METHOD_DEVX_OBJ_MODIFY));

/* ---- DEVX: memory ---- */

static int UVERBS_HANDLER(MLX5_IB_METHOD_DEVX_UMEM_REG)(struct uverbs_attr_bundle *attrs)
{
	struct ib_uobject *uobject = uverbs_attr_get_uobject(attrs,
							     MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE);
	u32 access, number = new_number(attrs);
	struct ib_umem *umem;
	u64 start, length;
	int error;

	if (uverbs_copy_from(&start, attrs, MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR) ||
	    uverbs_copy_from(&length, attrs, MLX5_IB_ATTR_DEVX_UMEM_REG_LEN))
		return -EFAULT;
	error = uverbs_get_flags32(&access, attrs, MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS,
				   IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |
					   IB_ACCESS_REMOTE_READ | IB_ACCESS_RELAXED_ORDERING);
	if (error)
		return error;
	umem = ib_umem_get(attrs->context->device, start, length, access);
	if (IS_ERR(umem))
		return PTR_ERR(umem);
	uobject->object = umem;
	uverbs_finalize_uobj_create(attrs, MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE);
	return tell(attrs, MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, number);
}

static int release_umem(struct ib_uobject *uobject, enum rdma_remove_reason why,
			struct uverbs_attr_bundle *attrs)
{
	ib_umem_release(uobject->object);
	return 0;
}

DECLARE_UVERBS_NAMED_METHOD(MLX5_IB_METHOD_DEVX_UMEM_REG,
			    HANDLE(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, MLX5_IB_OBJECT_DEVX_UMEM,
				   NEW),
			    VALUE_IN(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, u64),
			    VALUE_IN(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, u64),
			    UVERBS_ATTR_FLAGS_IN(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS,
						 enum ib_access_flags),
			    UVERBS_ATTR_CONST_IN(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, u64),
			    VALUE_OUT(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, u32));
DECLARE_UVERBS_NAMED_METHOD_DESTROY(MLX5_IB_METHOD_DEVX_UMEM_DEREG,
				    HANDLE(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE,
					   MLX5_IB_OBJECT_DEVX_UMEM, DESTROY));
DECLARE_UVERBS_NAMED_OBJECT(MLX5_IB_OBJECT_DEVX_UMEM, UVERBS_TYPE_ALLOC_IDR(release_umem),
			    &UVERBS_METHOD(MLX5_IB_METHOD_DEVX_UMEM_REG),
			    &UVERBS_METHOD(MLX5_IB_METHOD_DEVX_UMEM_DEREG));

/* ---- import ---- */

static int UVERBS_HANDLER(MLX5_IB_METHOD_PD_QUERY)(struct uverbs_attr_bundle *attrs)
{
	return tell(attrs, MLX5_IB_ATTR_QUERY_PD_RESP_PDN, 1);
}

DECLARE_UVERBS_NAMED_METHOD(MLX5_IB_METHOD_PD_QUERY,
			    HANDLE(MLX5_IB_ATTR_QUERY_PD_HANDLE, UVERBS_OBJECT_PD, READ),
			    VALUE_OUT(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, u32));
ADD_UVERBS_METHODS(mlx5_pd, UVERBS_OBJECT_PD, &UVERBS_METHOD(MLX5_IB_METHOD_PD_QUERY));
ADD_UVERBS_ATTRIBUTES_SIMPLE(mlx5_query_context, UVERBS_OBJECT_DEVICE,
			     UVERBS_METHOD_QUERY_CONTEXT,
			     UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX,
						 UVERBS_ATTR_MIN_SIZE(4), UA_MANDATORY));

const struct uapi_definition fake_mlx5_methods[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(MLX5_IB_OBJECT_UAR),
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(MLX5_IB_OBJECT_DEVX),
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(MLX5_IB_OBJECT_DEVX_OBJ),
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(MLX5_IB_OBJECT_DEVX_UMEM),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DEVICE, &mlx5_query_context),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_PD, &mlx5_pd),
	{},
};
