/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/mr.h"
#include "allocator/hooks.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/span.h"
#include "regpool/budget.h"
#include "regpool/domain.h"
#include "regpool/foreign.h"
#include "regpool/keys.h"
#include "regpool/listeners.h"
#include "regpool/state.h"
#include "regpool/proxy.h"
#include "regpool/register.h"
#include "regpool/evict.h"
#include "regpool/watch.h"

#include <errno.h>

/* The arguments of a registration. */
struct request {
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint64_t iova;
	unsigned access;
	const void *caller; /* a return address in it */
	/* One of these, or none, if it was made by another function than ibv_reg_mr(). */
	struct ibv_mr_init_attr *attr;
	struct ibv_buf *buf;
};

/* Why a range that starts in the heap could not be registered; pin_keys_get() has set errno. */
static PIN_COLD enum pin_reason why_not(const void *addr, size_t length)
{
	struct pin_range range = pin_range_of(addr, length);

	if (!pin_span_find(addr, length))
		return PIN_SPLIT;
	if (pin_granules_any(range, PIN_IS_REPLACED))
		return PIN_REPLACED;
	return errno == EFAULT ? PIN_PROTECTED : PIN_UNPINNED;
}

/* Fills the proxy with the keys for a request and counts it as a user of the memory region. */
static enum pin_reason serve_request(const struct request *request, struct pin_proxy *proxy)
{
	_Atomic uint32_t *user;
	struct pin_access_set *set;
	struct pin_domain *domain;
	struct pin_entry *entry;
	enum pin_reason reason;

	pin_watch_catch_up();
	if (request->iova != (uintptr_t)request->addr || !request->length)
		return PIN_IOVA;
	if (request->access & ~PIN_HEAP_ACCESS)
		return PIN_RIGHTS;
	domain = pin_domain_find(request->pd);
	set = domain ? pin_access_set_of(domain, request->access) : NULL;
	if (PIN_UNLIKELY(!set || !set->armed)) {
		reason = pin_domain_arm(request->pd, request->access, pin_options.access, &set);
		if (reason)
			return reason;
	}
	entry = pin_keys_get(set, request->addr, request->length, &user);
	if (!entry)
		return why_not(request->addr, request->length);
	/* EFA's provider in libfabric is not the only one that has adapters of no known kind.
	 */
	if (PIN_UNLIKELY(request->pd->context->device->node_type == IBV_NODE_UNSPECIFIED ||
			 pin_listeners_needs_unique_keys(request->caller)) &&
	    pin_entry_has_users(set, entry, 2)) {
		pin_keys_put(user);
		return PIN_SHARED;
	}
	proxy->copy = pin_region_of(set, entry)->copy;
	proxy->mr.addr = request->addr;
	proxy->mr.length = request->length;
	proxy->set = set;
	proxy->user = user;
	proxy->own = NULL;
	proxy->access = request->access;
	atomic_store_explicit(&proxy->live, true, memory_order_relaxed);
	return PIN_SERVED;
}

static struct ibv_mr *call_real(const struct request *request)
{
	const struct pin_ibverbs *verbs = pin_ibverbs_of(request->pd->context);

	if (request->attr)
		return verbs->reg_mr_ex(request->pd, request->attr);
	if (request->buf)
		return verbs->reg_buf_mr(request->pd, request->buf, request->addr,
					 request->length, (int)request->access);
	return verbs->reg_mr_iova2(request->pd, request->addr, request->length, request->iova,
				   request->access);
}

/*
 * If there is no room, idle memory regions are evicted for it. With on-demand paging the size
 * does not say how much is pinned.
 */
static struct ibv_mr *register_real(const struct request *request)
{
	bool on_demand = request->access & IBV_ACCESS_ON_DEMAND;
	struct pin_retry room = pin_retry_begin(request->pd->context,
						on_demand ? 0 : request->length);
	struct ibv_mr *mr;

	do {
		mr = call_real(request);
	} while (!mr && pin_retry_evict(&room, errno));
	if (mr)
		pin_allowance_note_own(room.adapter, (int64_t)request->length);
	return mr;
}

/* Passes the request to libibverbs, and keeps caches from using it when it is stale. */
static struct ibv_mr *pass_through(const struct request *request)
{
	struct pin_foreign foreign;
	struct ibv_mr *mr;

	pin_hook(note_registered);
	/* The adapter follows the page tables, so nothing goes stale. */
	if (request->access & IBV_ACCESS_ON_DEMAND)
		return register_real(request);
	pin_foreign_begin(&foreign, request->addr, request->length, request->caller);
	mr = register_real(request);
	if (mr)
		pin_foreign_end(&foreign);
	if (PIN_UNLIKELY(pin_budget_is_tight()))
		pin_evict_excess(0);
	return mr;
}

struct ibv_mr *pin_mr_register(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       unsigned access, const void *caller)
{
	struct request request = {pd, addr, length, iova, access, caller, NULL, NULL};
	struct pin_proxy *proxy = NULL;
	enum pin_reason reason = pin_state_off() ?: PIN_FOREIGN;

	/* Memory that is not heap needs no proxy. */
	if (reason == PIN_FOREIGN && pin_reserve_contains(addr)) {
		proxy = pin_proxy_new();
		reason = proxy ? serve_request(&request, proxy) : PIN_NO_ROOM;
	}
	pin_state_count(reason);
	if (PIN_LIKELY(reason == PIN_SERVED)) {
		if (PIN_UNLIKELY(pin_watch_heap_is_changing()))
			pin_foreign_invalidate(pin_range_of(addr, length), caller);
		return &proxy->mr;
	}
	if (proxy)
		pin_proxy_free(proxy);
	pin_debug("passed through (%s): %p, %s, access 0x%x", pin_reason_names[reason], addr,
		  PIN_SIZE(length), access);
	return pass_through(&request);
}

struct ibv_mr *pin_mr_register_extended(struct ibv_pd *pd, struct ibv_mr_init_attr *attr,
					const void *caller)
{
	const uint64_t plain = IBV_REG_MR_MASK_IOVA | IBV_REG_MR_MASK_ADDR;
	struct request request = {pd,	  attr->addr, attr->length, 0, (unsigned)attr->access,
				  caller, attr,	      NULL};
	bool has_iova = attr->comp_mask & IBV_REG_MR_MASK_IOVA;
	bool is_mapped = attr->comp_mask & IBV_REG_MR_MASK_ADDR;

	if (!pin_ibverbs_of(pd->context)->reg_mr_ex)
		return pin_ibverbs_lacks();
	if (is_mapped && !(attr->comp_mask & ~plain))
		return pin_mr_register(pd, attr->addr, attr->length,
				       has_iova ? attr->iova : (uintptr_t)attr->addr,
				       (unsigned)attr->access, caller);
	pin_state_count(is_mapped ? PIN_EXTENDED : PIN_DMABUF);
	return is_mapped ? pass_through(&request) : register_real(&request);
}

struct ibv_mr *pin_mr_register_buffer(struct ibv_pd *pd, struct ibv_buf *buf, void *addr,
				      size_t length, int access, const void *caller)
{
	struct request request = {pd, addr, length, 0, (unsigned)access, caller, NULL, buf};

	if (!pin_ibverbs_of(pd->context)->reg_buf_mr)
		return pin_ibverbs_lacks();
	pin_state_count(PIN_EXTENDED);
	return pass_through(&request);
}

static int deregister_real(struct ibv_mr *mr, int (*dereg_mr)(struct ibv_mr *mr))
{
	struct pin_adapter *adapter = pin_adapter_of(mr->context);
	int64_t length = (int64_t)mr->length;
	int error = (dereg_mr ? dereg_mr : pin_ibverbs_of(mr->context)->dereg_mr)(mr);

	if (!error)
		pin_allowance_note_own(adapter, -length);
	pin_entries_note_error(adapter, error);
	return error;
}

/* Releases what a proxy refers to, even if its domain is gone. */
static int release_proxy(const struct pin_proxy *proxy)
{
	struct pin_requests *lane = &pin_state.requests[pin_lane()];

	if (pin_state_off() == PIN_CHILD)
		return 0;
	if (proxy->own)
		return deregister_real(proxy->own, NULL);
	pin_keys_put(proxy->user);
	atomic_store_explicit(&lane->put, proxy->user, memory_order_relaxed);
	atomic_store_explicit(&lane->put_in, proxy->set, memory_order_relaxed);
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
	error = release_proxy(proxy);
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

static int reregister_real(struct ibv_mr *mr, int flags, const struct request *to,
			   pin_rereg_mr *rereg_mr)
{
	struct pin_foreign foreign;
	struct pin_retry room;
	int error;

	if (!rereg_mr)
		rereg_mr = pin_ibverbs_of(mr->context)->rereg_mr;
	if (!(flags & IBV_REREG_MR_CHANGE_TRANSLATION))
		return rereg_mr(mr, flags, to->pd, to->addr, to->length, (int)to->access);
	pin_foreign_begin(&foreign, to->addr, to->length, to->caller);
	room = pin_retry_begin(mr->context, to->length);
	do {
		error = rereg_mr(mr, flags, to->pd, to->addr, to->length, (int)to->access);
	} while (error == IBV_REREG_MR_ERR_CMD && pin_retry_evict(&room, errno));
	if (!error)
		pin_foreign_end(&foreign);
	return error;
}

/*
 * The adapter decides what it can, and says so, with a registration of the same memory that
 * stands for the proxy from then on if that succeeds. If it fails, the proxy stays as it was.
 */
static int reregister_proxy(struct pin_proxy *proxy, int flags, const struct request *to)
{
	const struct ibv_mr *mr = &proxy->mr;
	const struct request same = {mr->pd,	    mr->addr,	mr->length, (uintptr_t)mr->addr,
				     proxy->access, to->caller, NULL,	    NULL};
	struct ibv_mr *own = proxy->own ? proxy->own : pass_through(&same);
	int error, saved;

	if (!own)
		return IBV_REREG_MR_ERR_CMD;
	error = reregister_real(own, flags, to, NULL);
	saved = errno;
	if (error && !proxy->own)
		deregister_real(own, NULL);
	else if (!proxy->own)
		release_proxy(proxy);
	if (!error) {
		pin_register_copy(&proxy->copy, own);
		proxy->own = own;
		proxy->user = NULL;
	}
	errno = saved;
	return error;
}

int pin_mr_reregister(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		      size_t length, int access, const void *caller, pin_rereg_mr *rereg_mr)
{
	const struct request to = {pd, addr, length, 0, (unsigned)access, caller, NULL, NULL};
	struct pin_proxy *proxy = pin_proxy_of(mr);

	if (!proxy)
		return reregister_real(mr, flags, &to, rereg_mr);
	if (!proxy->live) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	pin_state_count(PIN_EXTENDED);
	return reregister_proxy(proxy, flags, &to);
}

/* Registers if necessary. */
static int hold(struct ibv_pd *pd, const void *addr, size_t length, unsigned access,
		struct pin_access_set *set, struct pin_entry **entry)
{
	int error = 0;

	/* An empty range has the keys of its address, whether these are there already or not.
	 */
	length += !length;
	if (!pin_span_find(addr, length) ||
	    pin_granules_any(pin_range_of(addr, length), PIN_IS_REPLACED))
		return -ENOENT;
	if (!set || !set->armed || pin_state_off())
		error = pin_state_error(pin_domain_arm(pd, access, pin_options.access, &set));
	if (!error)
		*entry = pin_keys_hold(set, addr, length);
	return error || *entry ? error : -ENOMEM;
}

/* The entry of this number, if it is HELD and covers the whole range; otherwise NULL. */
static inline struct pin_entry *held_if_covering(struct pin_access_set *set, uint32_t number,
						 const void *addr, size_t length)
{
	const uint32_t held = PIN_ENTRY_READY | PIN_ENTRY_HELD;
	struct pin_entry *entry = &set->entries[number];

	if (PIN_UNLIKELY(!number ||
			 (atomic_load_explicit(&entry->state, memory_order_acquire) & held) !=
				 held ||
			 !pin_entry_covers(entry, addr, length)))
		return NULL;
	return entry;
}

static inline void copy_key(const struct pin_entry *entry, struct pin_mr_key *key)
{
	key->lkey = entry->lkey;
	key->rkey = entry->rkey;
	key->start = entry->start;
	key->length = atomic_load_explicit(&entry->length, memory_order_relaxed);
}

/* For any domain, registering if necessary. */
static __attribute__((noinline)) int look_up_any_domain(struct ibv_pd *pd, const void *addr,
							size_t length, unsigned access,
							struct pin_mr_key *key)
{
	struct pin_domain *domain = pin_domain_find(pd);
	struct pin_access_set *set = NULL;
	struct pin_entry *entry = NULL;
	int saved = errno, error = 0;

	if (access & ~PIN_HEAP_ACCESS)
		return -EACCES;
	pin_watch_catch_up();
	if (domain) {
		set = pin_access_set_of(domain, access);
		entry = held_if_covering(set, pin_keys_covering(set, addr), addr, length)
				?: held_if_covering(set, pin_keys_covering_page(set, addr),
						    addr, length);
	}
	if (!entry)
		error = hold(pd, addr, length, access, set, &entry);
	errno = saved;
	if (error)
		return error;
	copy_key(entry, key);
	return 0;
}

/* The slow paths are tail calls, so that the fast path saves no registers. */
int pin_mr_lookup(struct ibv_pd *pd, const void *addr, size_t length, unsigned access,
		  struct pin_mr_key *key)
{
	struct pin_access_set *set;
	struct pin_entry *entry;

	if (PIN_UNLIKELY(!pd || !pin_domain_is_first(pd) || pin_watch_is_pending() ||
			 access & ~PIN_HEAP_ACCESS))
		return look_up_any_domain(pd, addr, length, access, key);
	set = pin_access_set_of(&pin_domains[0], access);
	entry = held_if_covering(set, pin_keys_covering(set, addr), addr, length);
	if (PIN_UNLIKELY(!entry))
		return look_up_any_domain(pd, addr, length, access, key);
	copy_key(entry, key);
	return 0;
}
