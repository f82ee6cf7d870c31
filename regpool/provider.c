/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/provider.h"
#include "allocator/log.h"
#include "allocator/reserve.h"
#include "regpool/domain.h"
#include "regpool/mr.h"
#include "regpool/proxy.h"

#include <malloc.h>
#include <pthread.h>

typedef void function(void);

/* The provider's own, of the same name and type as one of those below. */
#define PROVIDER(context, name) ((__typeof__(&name))(function *)(context)->ops._compat_##name)

/* What a provider is given begins with what the program has (struct verbs_mr, rdma-core). */
static int dereg_mr(struct ibv_mr *mr)
{
	return pin_mr_deregister_by(mr, PROVIDER(mr->context, dereg_mr));
}

static int rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		    int access)
{
	if (pin_proxy_of(mr))
		return pin_mr_reregister(mr, flags, pd, addr, length, access);
	return PROVIDER(mr->context, rereg_mr)(mr, flags, pd, addr, length, access);
}

/* Comes by here twice: pin_domain_dealloc() calls libibverbs once the PD has no memory region.
 */
static int dealloc_pd(struct ibv_pd *pd)
{
	struct pin_domain *domain = pin_registry_find(pd);

	if (domain && !domain->is_ending)
		return pin_domain_dealloc(pd);
	return PROVIDER(pd->context, dealloc_pd)(pd);
}

struct place {
	function *theirs, *ours;
	function **at;
};

/* Finds the one word that is the provider's function, or ours by now. */
static bool find(struct place *place, function **words, size_t n)
{
	size_t n_found = 0;

	for (size_t i = 0; i < n; i++)
		if (words[i] == place->theirs || words[i] == place->ours) {
			place->at = &words[i];
			n_found++;
		}
	return place->theirs && n_found == 1;
}

/* In what libibverbs has allocated for itself, so malloc knows how much there is. */
static bool take(struct ibv_context *context)
{
	struct verbs_context *extended = verbs_get_ctx_op(context, priv);
	const struct ibv_context_ops *ops = &context->ops;
	struct place places[] = {
		{(function *)ops->_compat_dereg_mr, (function *)dereg_mr, NULL},
		{(function *)ops->_compat_rereg_mr, (function *)rereg_mr, NULL},
		{(function *)ops->_compat_dealloc_pd, (function *)dealloc_pd, NULL},
	};
	function **words;

	if (!extended)
		return true; /* none of libibverbs */
	if (!pin_reserve_contains(extended->priv))
		return false;
	words = (function **)extended->priv;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(places); i++)
		if (!find(&places[i], words, malloc_usable_size(words) / sizeof *words))
			return false;
	for (size_t i = 0; i < PIN_ARRAY_SIZE(places); i++)
		*places[i].at = places[i].ours;
	return true;
}

void pin_provider_take(struct ibv_context *context)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	bool taken;

	pthread_mutex_lock(&lock);
	taken = take(context);
	pthread_mutex_unlock(&lock);
	if (!taken)
		pin_warn_once(
			"what libibverbs calls of %s is not where it was up to now: a "
			"program that finds ibv_dereg_mr with dlsym must be left out with "
			"PINALLOC_RESTRICT",
			context->device->name);
}
