/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/objects.h"
#include "allocator/base.h"
#include "allocator/log.h"
#include "allocator/reserve.h"
#include "regpool/evict.h"

#include <pthread.h>
#include <stdatomic.h>

/* The functions of struct verbs_context that take a context and attributes. */
#define FOR_EACH_FUNCTION(X)                                          \
	X(create_cq_ex, struct ibv_cq_ex, struct ibv_cq_init_attr_ex) \
	X(create_qp_ex, struct ibv_qp, struct ibv_qp_init_attr_ex)    \
	X(create_srq_ex, struct ibv_srq, struct ibv_srq_init_attr_ex) \
	X(create_wq, struct ibv_wq, struct ibv_wq_init_attr)          \
	X(create_rwq_ind_table, struct ibv_rwq_ind_table, struct ibv_rwq_ind_table_init_attr)

/* A context's own functions. One that is gone leaves them to the next at its address. */
struct tables {
	const struct ibv_context *context;
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *pd, enum ibv_mw_type type);
#define FUNCTION(name, object, attributes) \
	object *(*name)(struct ibv_context * context, attributes * attr);
	FOR_EACH_FUNCTION(FUNCTION)
#undef FUNCTION
};

#define MOST_CONTEXTS 65536
static struct pin_table all;
static _Atomic size_t n_all;

static struct tables *find_slot(const struct ibv_context *context)
{
	for (size_t i = 0; i < n_all; i++)
		if (pin_table_at(&all, struct tables, i)->context == context)
			return pin_table_at(&all, struct tables, i);
	return NULL;
}

static struct tables *new_slot(const struct ibv_context *context)
{
	struct tables *slot;

	if ((!all.base && pin_table_init(&all, sizeof *slot, MOST_CONTEXTS)) ||
	    pin_table_ensure(&all, n_all + 1))
		return NULL;
	slot = pin_table_at(&all, struct tables, n_all);
	slot->context = context;
	n_all++;
	return slot;
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

/*
 * The slot is complete before any function is hooked. A context may lack some: of its structure
 * only the last sz bytes are there.
 */
static void hook_tables(struct ibv_context *context, struct tables *slot)
{
	struct verbs_context *extended = verbs_get_ctx(context);

	if (context->ops.alloc_mw && context->ops.alloc_mw != alloc_mw) {
		slot->alloc_mw = context->ops.alloc_mw;
		context->ops.alloc_mw = alloc_mw;
	}
#define FUNCTION(name, object, attributes)                                             \
	if (extended &&                                                                \
	    extended->sz >= sizeof *extended - offsetof(struct verbs_context, name) && \
	    extended->name && extended->name != name) {                                \
		slot->name = extended->name;                                           \
		extended->name = name;                                                 \
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
	slot = slot ? slot : new_slot(context);
	if (slot)
		hook_tables(context, slot);
	else
		pin_warn_once("no memory to help with the objects of another context");
	pthread_mutex_unlock(&hook_lock);
}
