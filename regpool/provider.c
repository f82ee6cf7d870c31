/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hooks functions that a context has, because they reach libibverbs or the provider and bypass
 * the interposers (preload/verbs.c):
 *
 * The provider's, for calls of libibverbs' own functions: those found with dlsym(), or made
 * by a library loaded with RTLD_DEEPBIND. The real ibv_dereg_mr() would pass a proxy to the
 * provider, which would deregister the heap's memory region and free() the proxy. So in each
 * context the provider's functions that may be given a proxy, or a PD with such memory regions,
 * are replaced.
 *
 * libibverbs keeps the function pointers in private memory whose layout differs between
 * releases. But it also stores each in the public ibv_context.ops, as "_compat_...", which it
 * does not use. The one word of the private memory with the same value is the one to replace,
 * and the public copy stays available for calls from here.
 *
 * Those that create objects of the adapter by functions of the header, ibv_create_cq_ex() and
 * so on, which call through tables in the context. With evict.h, none fails because of memory
 * regions that nobody uses.
 */
#include <config.h>

#include "regpool/provider.h"
#include "allocator/log.h"
#include "allocator/reserve.h"
#include "regpool/domain.h"
#include "regpool/evict.h"
#include "regpool/mr.h"
#include "regpool/threads.h"

#include <malloc.h>
#include <stdatomic.h>

typedef void function(void);

/* The provider's function of the same name and type as a function below. */
#define PROVIDER(context, name) ((__typeof__(&name))(function *)(context)->ops._compat_##name)

/* The structure a provider gets begins with the program's (struct verbs_mr in rdma-core). */
static int dereg_mr(struct ibv_mr *mr)
{
	return pin_mr_deregister_by(mr, PROVIDER(mr->context, dereg_mr));
}

static int rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		    int access)
{
	return pin_mr_reregister(mr, flags, pd, addr, length, access,
				 __builtin_return_address(0), PROVIDER(mr->context, rereg_mr));
}

/*
 * Called twice: once its memory regions are gone, pin_domain_dealloc() calls libibverbs'
 * function, which calls this one again.
 */
static int dealloc_pd(struct ibv_pd *pd)
{
	struct pin_domain *domain = pin_domain_find(pd);

	if (domain && !domain->is_ending)
		return pin_domain_dealloc(pd);
	return PROVIDER(pd->context, dealloc_pd)(pd);
}

struct hook {
	function *theirs, *ours;
	function **at;
};

/* Finds the only word that holds the provider's function, or ours already. */
static bool find_word(struct hook *hook, function **words, size_t n)
{
	size_t n_found = 0;

	for (size_t i = 0; i < n; i++)
		if (words[i] == hook->theirs || words[i] == hook->ours) {
			hook->at = &words[i];
			n_found++;
		}
	return hook->theirs && n_found == 1;
}

/* libibverbs has allocated its private memory with malloc, which knows the size. */
static bool hook_calls(struct ibv_context *context)
{
	struct verbs_context *extended = verbs_get_ctx_op(context, priv);
	const struct ibv_context_ops *ops = &context->ops;
	struct hook hooks[] = {
		{(function *)ops->_compat_dereg_mr, (function *)dereg_mr, NULL},
		{(function *)ops->_compat_rereg_mr, (function *)rereg_mr, NULL},
		{(function *)ops->_compat_dealloc_pd, (function *)dealloc_pd, NULL},
	};
	function **words;

	if (!extended)
		return true; /* not made by libibverbs */
	if (!pin_reserve_contains(extended->priv))
		return false;
	words = (function **)extended->priv;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(hooks); i++)
		if (!find_word(&hooks[i], words, malloc_usable_size(words) / sizeof *words))
			return false;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(hooks); i++)
		*hooks[i].at = hooks[i].ours;
	return true;
}

/* --- objects -------------------------------------------------------------------------- */

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

static struct pin_table all = PIN_TABLE(struct tables, 65536, 0);
static _Atomic size_t n_all;

/* Those of a context, or the next ones, which have none. */
static struct tables *tables_of(const struct ibv_context *context)
{
	struct tables *its = pin_table_at(&all, struct tables, 0);

	for (size_t i = 0; i < n_all && its->context != context; i++)
		its++;
	return its;
}

#define FUNCTION(name, object, attributes)                                          \
	static object *name(struct ibv_context *context, attributes *attr)          \
	{                                                                           \
		attributes given = *attr;                                           \
                                                                                    \
		return PIN_CREATE(context, tables_of(context)->name(context, attr), \
				  *attr = given);                                   \
	}
FOR_EACH_FUNCTION(FUNCTION)
#undef FUNCTION

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	return PIN_CREATE(pd->context, tables_of(pd->context)->alloc_mw(pd, type));
}

/*
 * The tables have a function before it is hooked. A context may lack some: of its structure
 * only the last sz bytes are there.
 */
static void hook_objects(struct ibv_context *context)
{
	struct verbs_context *extended = verbs_get_ctx(context);
	struct tables *its;

	if (pin_table_ensure(&all, n_all + 1)) {
		pin_warn_once("no memory to help with the objects of another context");
		return;
	}
	its = tables_of(context);
	n_all += !its->context;
	its->context = context;
	if (context->ops.alloc_mw && context->ops.alloc_mw != alloc_mw) {
		its->alloc_mw = context->ops.alloc_mw;
		context->ops.alloc_mw = alloc_mw;
	}
#define FUNCTION(name, object, attributes)                                             \
	if (extended &&                                                                \
	    extended->sz >= sizeof *extended - offsetof(struct verbs_context, name) && \
	    extended->name && extended->name != name) {                                \
		its->name = extended->name;                                            \
		extended->name = name;                                                 \
	}
	FOR_EACH_FUNCTION(FUNCTION)
#undef FUNCTION
}

void pin_provider_hook(struct ibv_context *context)
{
	static struct pin_mutex hook_lock = {.rank = PIN_RANK_OUTER};

	PIN_LOCKED(&hook_lock);
	hook_objects(context);
	if (!hook_calls(context))
		pin_warn_once("the provider functions of %s are not where libibverbs is known "
			      "to store them: exclude programs that find ibv_dereg_mr with "
			      "dlsym, with PINALLOC_PROGRAMS",
			      context->device->name);
}
