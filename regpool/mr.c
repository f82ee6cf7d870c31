/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/mr.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/region.h"
#include "regpool/evict.h"
#include "regpool/keys.h"
#include "regpool/pool.h"
#include "regpool/proxy.h"
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

static int class_of(unsigned access)
{
	return access & IBV_ACCESS_RELAXED_ORDERING ? PIN_CLASS_RELAXED : PIN_CLASS_PLAIN;
}

/* PINALLOC_ACCESS as the rights of a region's MR. */
static unsigned region_rights(int kind)
{
	unsigned rights = kind == PIN_CLASS_RELAXED ? IBV_ACCESS_RELAXED_ORDERING : 0;

	if (pin_options.access & PIN_ACCESS_LOCAL)
		rights |= IBV_ACCESS_LOCAL_WRITE;
	if (pin_options.access & PIN_ACCESS_READ)
		rights |= IBV_ACCESS_REMOTE_READ;
	if (pin_options.access & PIN_ACCESS_WRITE)
		rights |= IBV_ACCESS_REMOTE_WRITE;
	if (pin_options.access & PIN_ACCESS_ATOMIC)
		rights |= IBV_ACCESS_REMOTE_ATOMIC;
	return rights;
}

/* Whether a region could serve it at all; the region's number on PIN_SERVED. */
static enum pin_reason examine(const struct request *request, uint32_t *number)
{
	if (PIN_UNLIKELY(pin_pool_off()))
		return pin_pool_off();
	if (!pin_reserve_contains(request->addr))
		return PIN_FOREIGN;
	pin_watch_settle();
	if (request->iova != (uintptr_t)request->addr || !request->length)
		return PIN_IOVA;
	if (request->access & ~region_rights(class_of(request->access)))
		return PIN_RIGHTS;
	*number = pin_region_find(request->addr, request->length);
	if (PIN_LIKELY(*number != PIN_REGION_NONE))
		return PIN_SERVED;
	return pin_region_at(request->addr) == PIN_REGION_NONE ? PIN_REPLACED : PIN_SPLIT;
}

/* The armed class for a request, arming it if need be. */
static struct pin_class *armed_class(struct ibv_pd *pd, int kind, struct pin_domain **domain)
{
	*domain = pin_domain_find(pd);
	if (*domain && PIN_UNLIKELY(!(*domain)->classes[kind].armed))
		*domain = pin_domain_arm(pd, kind, region_rights(kind));
	return *domain ? &(*domain)->classes[kind] : NULL;
}

/* Makes the proxy hold what the request needs, as one more user of the region. */
static enum pin_reason serve(const struct request *request, struct pin_proxy *proxy)
{
	struct pin_registration *registration;
	struct pin_user_count *user;
	uint32_t number = PIN_REGION_NONE;
	struct pin_domain *domain;
	struct pin_class *keys;
	enum pin_reason reason;

	reason = examine(request, &number);
	if (reason != PIN_SERVED)
		return reason;
	keys = armed_class(request->pd, class_of(request->access), &domain);
	if (!keys)
		return pin_pool_off() ? pin_pool_off() : PIN_UNSEEN;
	registration = pin_keys_use(domain, keys, number, &user);
	if (!registration)
		return PIN_UNPINNED;
	if (PIN_UNLIKELY(request->access & ~registration->access)) {
		pin_keys_put(user);
		return PIN_RIGHTS;
	}
	pin_proxy_fill(proxy, registration->mr, registration->provider_bytes, request->addr,
		       request->length);
	proxy->user = user;
	proxy->domain = domain;
	proxy->own = NULL;
	proxy->generation = domain->generation;
	proxy->access = request->access;
	return PIN_SERVED;
}

/* Hands the request on; regions nobody uses give way when memory is locked up. */
static struct ibv_mr *pass(const struct request *request)
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

static int deregister_real(struct ibv_mr *mr)
{
	int error = pin_ibverbs()->dereg_mr(mr);

	/* Room for a region that did not fit. */
	if (!error)
		pin_keys_released();
	return error;
}

/* Gives up what a proxy stands for. Its domain may be gone; then so is the MR. */
static int let_go(const struct pin_proxy *proxy)
{
	if (pin_pool_off() == PIN_CHILD)
		return 0;
	if (proxy->own)
		return deregister_real(proxy->own);
	if (proxy->generation == proxy->domain->generation)
		pin_keys_put(proxy->user);
	return 0;
}

int pin_mr_deregister(struct ibv_mr *mr)
{
	struct pin_proxy *proxy = pin_proxy_of(mr);
	int error;

	if (!proxy)
		return deregister_real(mr);
	if (!atomic_exchange(&proxy->live, false)) {
		pin_warn_once("ibv_dereg_mr of %p, which is not registered any more",
			      (void *)mr);
		return EINVAL;
	}
	error = let_go(proxy);
	if (error)
		atomic_store(&proxy->live, true);
	else
		pin_proxy_free(proxy);
	return error;
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

/* What no region can serve gets an MR of its own, behind the same proxy. */
static bool own_registration(const struct request *request, struct pin_proxy *proxy)
{
	struct ibv_mr *mr = pass(request);

	if (!mr)
		return false;
	pin_proxy_fill(proxy, mr, pin_keys_readable_bytes(mr), request->addr, request->length);
	proxy->own = mr;
	proxy->user = NULL;
	proxy->access = request->access;
	return true;
}

int pin_mr_reregister(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		      size_t length, int access)
{
	struct pin_proxy *proxy = pin_proxy_of(mr);
	enum pin_reason reason;
	struct pin_proxy before;
	struct request request;

	if (!proxy)
		return pin_ibverbs()->rereg_mr(mr, flags, pd, addr, length, access);
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
	struct pin_domain *domain = pin_domain_find(pd);
	uint32_t number = pin_region_find(addr, length);
	struct pin_class *keys;
	int saved = errno;

	*entry = NULL;
	if (number == PIN_REGION_NONE)
		return -ENOENT;
	if (domain && !pin_pool_off()) {
		keys = atomic_load(&domain->lookup);
		keys = armed_class(pd, (int)(keys - domain->classes), &domain);
		*entry = keys ? pin_keys_hold(domain, keys, number) : NULL;
	}
	errno = saved;
	return *entry ? 0 : -ENOMEM;
}

/* The entry of region `number` if its keys were handed out before and it has the whole
 * range, else NULL. */
static inline struct pin_entry *entry_held(const struct ibv_pd *pd, uint32_t number,
					   const void *addr, size_t length)
{
	const uint32_t held = PIN_ENTRY_READY | PIN_ENTRY_HELD;
	struct pin_domain *domain = pin_domain_find(pd);
	struct pin_entry *entry;
	size_t offset;

	if (PIN_UNLIKELY(!domain))
		return NULL;
	entry = pin_keys_at(atomic_load_explicit(&domain->lookup, memory_order_acquire),
			    number);
	if (PIN_UNLIKELY(!entry || (atomic_load_explicit(&entry->state, memory_order_acquire) &
				    held) != held))
		return NULL;
	offset = (uintptr_t)addr - entry->start;
	if (PIN_UNLIKELY(length > entry->length || offset > entry->length - length))
		return NULL;
	return entry;
}

int pin_mr_lookup(struct ibv_pd *pd, const void *addr, size_t length, uint32_t *lkey,
		  uint32_t *rkey)
{
	struct pin_entry *entry;
	int error;

	pin_watch_settle();
	entry = entry_held(pd, pin_region_at(addr), addr, length);
	if (PIN_UNLIKELY(!entry)) {
		error = look_up_slowly(pd, addr, length, &entry);
		if (error)
			return error;
	}
	*lkey = entry->lkey;
	*rkey = entry->rkey;
	return 0;
}

int pin_mr_attach(struct ibv_pd *pd, unsigned access)
{
	int kind = class_of(access), saved = errno, error;

	if (access & ~region_rights(kind))
		return -EINVAL;
	error = pin_domain_attach(pd, kind, access);
	errno = saved;
	return error;
}
