/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/mr.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/span.h"
#include "regpool/domain.h"
#include "regpool/evict.h"
#include "regpool/foreign.h"
#include "regpool/keys.h"
#include "regpool/pool.h"
#include "regpool/proxy.h"
#include "regpool/register.h"
#include "regpool/watch.h"

#include <errno.h>

/* What a request is about. */
struct request {
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint64_t iova;
	unsigned access;
};

/* Whether a memory region of the heap could serve it at all. */
static enum pin_reason examine(const struct request *request)
{
	if (PIN_UNLIKELY(pin_pool_off()))
		return pin_pool_off();
	if (!pin_reserve_contains(request->addr))
		return PIN_FOREIGN;
	pin_watch_settle();
	if (request->iova != (uintptr_t)request->addr || !request->length)
		return PIN_IOVA;
	if (request->access & ~PIN_CLASS_RIGHTS)
		return PIN_RIGHTS;
	return PIN_SERVED;
}

/* Why nothing could be registered for a range of the heap. */
static PIN_COLD enum pin_reason why_not(const void *addr, size_t length)
{
	if (!pin_span_find(addr, length))
		return PIN_SPLIT;
	return pin_granules_any_replaced(pin_range_of(addr, length)) ? PIN_REPLACED
								     : PIN_UNPINNED;
}

/* Whether a class may have these rights: what is armed has, and need not be looked at. */
static enum pin_reason examine_rights(unsigned access)
{
	if (access & ~(pin_domain_rights() | IBV_ACCESS_RELAXED_ORDERING))
		return PIN_RIGHTS;
	return pin_class_is_sound(access) ? PIN_SERVED : PIN_UNSOUND;
}

/* The class for a request; why not, if it cannot be armed. */
static PIN_COLD enum pin_reason arm(const struct request *request, struct pin_domain **domain)
{
	enum pin_reason reason = examine_rights(request->access);
	int error;

	if (reason != PIN_SERVED)
		return reason;
	error = pin_domain_arm(request->pd, request->access, pin_domain_rights(), domain);
	if (error == -EEXIST)
		return PIN_RIGHTS;
	if (error)
		return pin_pool_off() ? pin_pool_off() : PIN_UNSEEN;
	return PIN_SERVED;
}

/* Makes the proxy hold what the request needs, as one more user of a memory region. */
static enum pin_reason serve(const struct request *request, struct pin_proxy *proxy)
{
	struct pin_registration *registration;
	struct pin_user_count *user;
	struct pin_domain *domain;
	enum pin_reason reason;
	unsigned number;

	reason = examine(request);
	if (reason != PIN_SERVED)
		return reason;
	domain = pin_registry_find(request->pd);
	number = pin_class_of(request->access);
	if (PIN_UNLIKELY(!domain || !domain->classes[number].armed)) {
		reason = arm(request, &domain);
		if (reason != PIN_SERVED)
			return reason;
	}
	registration = pin_keys_use(domain, &domain->classes[number], request->addr,
				    request->length, &user);
	if (!registration)
		return why_not(request->addr, request->length);
	pin_proxy_fill(proxy, registration->mr, registration->provider_bytes, request->addr,
		       request->length);
	proxy->user = user;
	proxy->domain = domain;
	proxy->own = NULL;
	proxy->generation = domain->generation;
	proxy->access = request->access;
	return PIN_SERVED;
}

/* Memory regions nobody uses give way when memory is locked up. */
static struct ibv_mr *register_real(const struct request *request)
{
	struct ibv_mr *mr;
	uint64_t given_up;
	int error;

	do {
		given_up = pin_pool.destroyed;
		mr = pin_ibverbs()->reg_mr_iova2(request->pd, request->addr, request->length,
						 request->iova, request->access);
		error = errno;
	} while (!mr && pin_ibverbs_out_of_room(error) && !pin_pool_off() &&
		 (pin_evict_one(0) || pin_pool.destroyed != given_up));
	errno = error;
	return mr;
}

/* Without a memory region: what the adapter finds by itself, page by page, cannot go stale. */
static bool pins(const struct request *request)
{
	return !(request->access & IBV_ACCESS_ON_DEMAND);
}

/* Registrations that may be in vain because another thread replaces what is registered. */
#define MOST_TRIES 16

/* Hands the request on, and watches what it is about. */
static struct ibv_mr *pass(const struct request *request)
{
	struct pin_foreign foreign;
	struct ibv_mr *mr;
	int error;

	if (!pins(request) || !pin_foreign_begin(&foreign, request->addr, request->length))
		return register_real(request);
	mr = register_real(request);
	for (int i = 1; mr && i < MOST_TRIES && !pin_foreign_held(&foreign); i++) {
		pin_foreign_again(&foreign);
		if (pin_ibverbs()->dereg_mr(mr))
			break;
		mr = register_real(request);
	}
	error = errno;
	/* It is not to be kept, then: whoever keeps it is told when it has it. */
	if (mr && !pin_foreign_held(&foreign))
		pin_watch_tell_again(foreign.descriptors);
	pin_foreign_end(&foreign, mr);
	errno = error;
	return mr;
}

struct ibv_mr *pin_mr_register(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       unsigned access)
{
	struct request request = {pd, addr, length, iova, access};
	struct pin_proxy *proxy = NULL;
	enum pin_reason reason = PIN_FOREIGN;

	/* The common refusal first: no proxy is needed for it. */
	if (pin_reserve_contains(addr)) {
		proxy = pin_proxy_new();
		reason = proxy ? serve(&request, proxy) : PIN_NO_ROOM;
	} else if (pin_pool_off()) {
		reason = pin_pool_off();
	}
	pin_pool_count(reason);
	if (PIN_LIKELY(reason == PIN_SERVED))
		return &proxy->mr;
	if (proxy)
		pin_proxy_free(proxy);
	pin_debug("passed through (%s): %p, %s, access 0x%x", pin_reason_names[reason], addr,
		  PIN_SIZE(length), access);
	return pass(&request);
}

static int deregister_real(struct ibv_mr *mr, int (*dereg_mr)(struct ibv_mr *mr))
{
	struct pin_foreign foreign;
	bool watched = pin_foreign_take(&foreign, mr);
	int error = dereg_mr(mr);

	if (watched)
		pin_foreign_end(&foreign, error ? mr : NULL);
	/* Room for what did not fit. */
	if (!error)
		pin_register_released();
	return error;
}

/* Gives up what a proxy stands for. Its domain may be gone; then so is the MR. */
static int let_go(const struct pin_proxy *proxy)
{
	if (pin_pool_off() == PIN_CHILD)
		return 0;
	if (proxy->own)
		return deregister_real(proxy->own, pin_ibverbs()->dereg_mr);
	if (proxy->generation == proxy->domain->generation)
		pin_keys_put(proxy->user);
	return 0;
}

static int deregister_proxy(struct pin_proxy *proxy)
{
	int error;

	if (!atomic_exchange(&proxy->live, false)) {
		pin_warn_once("ibv_dereg_mr of %p, which is not registered any more",
			      (void *)proxy);
		return EINVAL;
	}
	error = let_go(proxy);
	if (error)
		atomic_store(&proxy->live, true);
	else
		pin_proxy_free(proxy);
	return error;
}

int pin_mr_deregister_by(struct ibv_mr *mr, int (*dereg_mr)(struct ibv_mr *mr))
{
	struct pin_proxy *proxy = pin_proxy_of(mr);

	return proxy ? deregister_proxy(proxy) : deregister_real(mr, dereg_mr);
}

int pin_mr_deregister(struct ibv_mr *mr)
{
	struct pin_proxy *proxy = pin_proxy_of(mr);

	return proxy ? deregister_proxy(proxy) : deregister_real(mr, pin_ibverbs()->dereg_mr);
}

/* The registration a rereg asks for: what it does not change stays. */
static struct request changed(const struct pin_proxy *proxy, int flags, struct ibv_pd *pd,
			      void *addr, size_t length, int access)
{
	struct request request = {proxy->mr.pd, proxy->mr.addr, proxy->mr.length, 0,
				  proxy->access};

	if (flags & IBV_REREG_MR_CHANGE_PD)
		request.pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		request.addr = addr;
		request.length = length;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		request.access = (unsigned)access;
	request.iova = (uintptr_t)request.addr;
	return request;
}

/* libibverbs' own checks (verbs.c, ibv_rereg_mr, rdma-core 44). */
static bool is_sound(int flags, const struct ibv_pd *pd, const void *addr, size_t length,
		     int access)
{
	if (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED)
		return false;
	if ((flags & IBV_REREG_MR_CHANGE_PD) && !pd)
		return false;
	if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!length || !addr))
		return false;
	return !access || (flags & IBV_REREG_MR_CHANGE_ACCESS);
}

/* What none of ours can serve gets an MR of its own, behind the same proxy. */
static bool own_registration(const struct request *request, struct pin_proxy *proxy)
{
	struct ibv_mr *mr = pass(request);

	if (!mr)
		return false;
	pin_proxy_fill(proxy, mr, pin_register_readable_bytes(mr), request->addr,
		       request->length);
	proxy->own = mr;
	proxy->user = NULL;
	proxy->access = request->access;
	return true;
}

/* It keeps its address, and so its place in the books. */
static int reregister_real(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			   size_t length, int access)
{
	struct pin_foreign foreign;
	bool watched = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) &&
		       pin_foreign_begin(&foreign, addr, length);
	int error = pin_ibverbs()->rereg_mr(mr, flags, pd, addr, length, access);

	if (watched)
		pin_foreign_end(&foreign, error ? NULL : mr);
	return error;
}

int pin_mr_reregister(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		      size_t length, int access)
{
	struct pin_proxy *proxy = pin_proxy_of(mr);
	enum pin_reason reason;
	struct pin_proxy before;
	struct request request;

	if (!proxy)
		return reregister_real(mr, flags, pd, addr, length, access);
	if (!proxy->live || !is_sound(flags, pd, addr, length, access)) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	before = *proxy;
	request = changed(proxy, flags, pd, addr, length, access);
	reason = serve(&request, proxy);
	pin_pool_count(reason);
	if (reason != PIN_SERVED && !own_registration(&request, proxy))
		return IBV_REREG_MR_ERR_CMD;
	let_go(&before);
	return 0;
}

/* Registers if need be; errno stays as it was. */
static PIN_COLD int look_up_slowly(struct ibv_pd *pd, const void *addr, size_t length,
				   struct pin_entry **entry)
{
	struct pin_domain *domain = pin_registry_find(pd);
	struct pin_class *keys;
	int saved = errno;

	*entry = NULL;
	if (!length || why_not(addr, length) != PIN_UNPINNED)
		return -ENOENT;
	if (domain && !pin_pool_off()) {
		keys = atomic_load(&domain->lookup);
		if (keys->armed || !pin_domain_arm(pd, pin_class_access(domain, keys),
						   pin_domain_rights(), &domain))
			*entry = pin_keys_hold(domain, keys, addr, length);
	}
	errno = saved;
	return *entry ? 0 : -ENOMEM;
}

/* The entry that has the whole range if its keys were handed out before, else NULL. */
static inline struct pin_entry *entry_held(struct pin_domain *domain, const void *addr,
					   size_t length)
{
	const uint32_t held = PIN_ENTRY_READY | PIN_ENTRY_HELD;
	struct pin_class *keys = atomic_load_explicit(&domain->lookup, memory_order_acquire);
	uint32_t number = pin_keys_covering(keys, addr);
	struct pin_entry *entry;

	if (PIN_UNLIKELY(number == PIN_NO_ENTRY))
		return NULL;
	entry = pin_table_at(&keys->entries, struct pin_entry, number);
	if (PIN_UNLIKELY((atomic_load_explicit(&entry->state, memory_order_acquire) & held) !=
				 held ||
			 !pin_entry_covers(entry, addr, length)))
		return NULL;
	return entry;
}

/* In any domain, registered or not. */
static __attribute__((noinline)) int look_up(struct ibv_pd *pd, const void *addr, size_t length,
					     uint32_t *lkey, uint32_t *rkey)
{
	struct pin_domain *domain = pin_registry_find(pd);
	struct pin_entry *entry;
	int error;

	pin_watch_settle();
	entry = domain ? entry_held(domain, addr, length) : NULL;
	if (PIN_UNLIKELY(!entry)) {
		error = look_up_slowly(pd, addr, length, &entry);
		if (error)
			return error;
	}
	*lkey = entry->lkey;
	*rkey = entry->rkey;
	return 0;
}

/* The others are called last, so that the usual way saves no register. */
int pin_mr_lookup(struct ibv_pd *pd, const void *addr, size_t length, uint32_t *lkey,
		  uint32_t *rkey)
{
	struct pin_entry *entry;

	if (PIN_UNLIKELY(!pd || !pin_registry_is_first(pd) || pin_watch_is_pending()))
		return look_up(pd, addr, length, lkey, rkey);
	entry = entry_held(&pin_registry[0], addr, length);
	if (PIN_UNLIKELY(!entry))
		return look_up(pd, addr, length, lkey, rkey);
	*lkey = entry->lkey;
	*rkey = entry->rkey;
	return 0;
}

int pin_mr_attach(struct ibv_pd *pd, unsigned access)
{
	int saved = errno, error;

	if (examine_rights(access) != PIN_SERVED)
		return -EINVAL;
	error = pin_domain_attach(pd, access);
	errno = saved;
	return error;
}
