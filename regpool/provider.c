/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/provider.h"
#include "allocator/log.h"
#include "allocator/reserve.h"
#include "regpool/arm.h"
#include "regpool/mr.h"

#include <malloc.h>
#include <pthread.h>

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
	return pin_mr_reregister_by(mr, flags, pd, addr, length, access,
				    __builtin_return_address(0),
				    PROVIDER(mr->context, rereg_mr));
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
static bool hook_context(struct ibv_context *context)
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

void pin_provider_hook(struct ibv_context *context)
{
	static pthread_mutex_t hook_lock = PTHREAD_MUTEX_INITIALIZER;
	bool taken;

	pthread_mutex_lock(&hook_lock);
	taken = hook_context(context);
	pthread_mutex_unlock(&hook_lock);
	if (!taken)
		pin_warn_once("the provider functions of %s are not where libibverbs is known "
			      "to store them: exclude programs that find ibv_dereg_mr with "
			      "dlsym, with PINALLOC_PROGRAMS",
			      context->device->name);
}
