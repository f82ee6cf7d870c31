/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/objects.h"
#include "allocator/base.h"
#include "regpool/room.h"

#include <pthread.h>
#include <stdatomic.h>

/* The functions of struct verbs_context that take a context and attributes. */
#define FOR_EACH_FUNCTION(X)                                          \
	X(create_cq_ex, struct ibv_cq_ex, struct ibv_cq_init_attr_ex) \
	X(create_qp_ex, struct ibv_qp, struct ibv_qp_init_attr_ex)    \
	X(create_srq_ex, struct ibv_srq, struct ibv_srq_init_attr_ex) \
	X(create_wq, struct ibv_wq, struct ibv_wq_init_attr)          \
	X(create_rwq_ind_table, struct ibv_rwq_ind_table, struct ibv_rwq_ind_table_init_attr)

/* A context's own functions. One that is gone leaves its slot to the next at its address. */
struct tables {
	_Atomic(const struct ibv_context *) context;
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *pd, enum ibv_mw_type type);
#define FUNCTION(name, object, attributes) \
	object *(*name)(struct ibv_context * context, attributes * attr);
	FOR_EACH_FUNCTION(FUNCTION)
#undef FUNCTION
};

/* Contexts beyond these are not hooked. */
static struct tables all[64];

static struct tables *find_slot(const struct ibv_context *context)
{
	for (size_t i = 0; i < PIN_ARRAY_SIZE(all); i++) {
		const struct ibv_context *at = atomic_load(&all[i].context);

		if (!at || at == context)
			return &all[i];
	}
	return NULL;
}

#define FUNCTION(name, object, attributes)                                          \
	static object *name(struct ibv_context *context, attributes *attr)          \
	{                                                                           \
		attributes given = *attr;                                           \
                                                                                    \
		return PIN_CREATE(context, find_slot(context)->name(context, attr), \
				  *attr = given);                                   \
	}
FOR_EACH_FUNCTION(FUNCTION)
#undef FUNCTION

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	return PIN_CREATE(pd->context, find_slot(pd->context)->alloc_mw(pd, type));
}

/* The slot is complete before any function is hooked. A context may lack some. */
static void hook_tables(struct ibv_context *context, struct tables *slot)
{
	struct verbs_context *extended;

	if (context->ops.alloc_mw && context->ops.alloc_mw != alloc_mw) {
		slot->alloc_mw = context->ops.alloc_mw;
		atomic_store(&slot->context, context);
		context->ops.alloc_mw = alloc_mw;
	}
#define FUNCTION(function, object, attributes)            \
	extended = verbs_get_ctx_op(context, function);   \
	if (extended && extended->function != function) { \
		slot->function = extended->function;      \
		atomic_store(&slot->context, context);    \
		extended->function = function;            \
	}
	FOR_EACH_FUNCTION(FUNCTION)
#undef FUNCTION
}

void pin_objects_hook(struct ibv_context *context)
{
	static pthread_mutex_t hook_lock = PTHREAD_MUTEX_INITIALIZER;
	struct tables *slot;

	pthread_mutex_lock(&hook_lock);
	slot = find_slot(context);
	if (slot)
		hook_tables(context, slot);
	pthread_mutex_unlock(&hook_lock);
}
