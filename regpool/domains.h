/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The known protection domains, and the access sets of each. An access set holds the memory
 * regions of one domain that have exactly the same access rights, so that no key carries a
 * right, or relaxed ordering, that was not asked for.
 *
 * Reading keys takes no lock, and none of those below is taken under a lock of jemalloc.
 */
#pragma once

#include "allocator/mutex.h"
#include "allocator/reserve.h"
#include "regpool/ibverbs.h"

#include <pthread.h>
#include <stdatomic.h>

/*
 * The IBV_ACCESS_* flags that memory regions of the heap can have. Each combination has an
 * access set.
 */
#define PIN_HEAP_ACCESS 0x10000fu
#define PIN_ACCESS_SETS 32

_Static_assert(PIN_HEAP_ACCESS == (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
				   IBV_ACCESS_RELAXED_ORDERING),
	       "pin_access_set_of() takes the last four bits and bit 20");

/*
 * A set is in use once so many of its requests had to be registered (ahead.h). Short-lived
 * domains are not; and registering the whole heap counts against the budget for each set.
 */
#define PIN_IN_USE 4u

/* More memory regions than any program has. */
#define PIN_MOST_ENTRIES ((size_t)1 << 20)

/* Complete, with its tables, before `domain` is set; it stays for the next PD in the slot. */
struct pin_access_set {
	_Atomic(struct pin_domain *) domain; /* NULL: not made yet */
	unsigned access;		     /* the exact IBV_ACCESS_* flags */
	struct pin_table covering;	     /* granule → number of an entry (entries.h) */
	struct pin_table in_part;	     /* page → number of an entry, likewise */
	struct pin_entry *entries;	     /* those of the tables below, by number */
	struct pin_region *regions;
	struct pin_table users; /* pin_users, of 16 numbers each */
	struct pin_table entry_table, region_table;
	_Atomic uint32_t n_entries; /* the largest entry number ever used */
	_Atomic bool armed;
	_Atomic bool is_first;	   /* no other set was armed: looks count as requests */
	_Atomic uint32_t n_needed; /* requests that had to be registered, up to PIN_IN_USE */
	_Atomic int64_t spent;	   /* bytes, of the allowance (budget.h) */
	/* Guards the following and which entries are found. Not held across a verb. */
	struct pin_mutex lock; /* PIN_RANK_INNER */
	uint32_t furthest;     /* the root of the tree of entries (entries.c) */
} __attribute__((aligned(64)));

/* An adapter, whose name stays, with sums of bytes over all its domains. */
struct pin_adapter {
	char name[64];
	_Atomic size_t registered;
	_Atomic size_t ahead; /* of these, that no request has waited for */
	_Atomic int64_t room; /* for these; INT64_MAX: no error has shown any */
};

struct pin_domain {
	_Atomic(struct ibv_pd *) pd; /* NULL: the slot is free */
	_Atomic(const struct ibv_context *) context;
	/*
	 * Protects against deallocation of the PD: taken exclusively to arm and deallocate,
	 * shared while the registrar registers one range. Writers go first. Look-ups do not
	 * take it. An entry gets BUSY (entries.h) after it is taken, or without it.
	 */
	pthread_rwlock_t lock;		    /* PIN_RANK_DOMAIN */
	_Atomic bool is_ending;		    /* libibverbs is deallocating the PD */
	struct pin_access_set *access_sets; /* PIN_ACCESS_SETS of them */
	_Atomic unsigned max_access;	    /* the most rights a set may be armed with */
	struct pin_adapter *adapter;
	_Atomic size_t max_mr_size; /* bytes */
	_Atomic uint64_t created;   /* real registrations, for the report */
	_Atomic size_t registered, registered_peak;
};

/*
 * An MR with what its provider keeps behind it: the largest structure that is known of
 * rdma-core's providers is mlx5_vfio_mr, of 88 bytes. A proxy has 64 bytes more.
 */
struct pin_mr_copy {
	_Alignas(struct ibv_mr) unsigned char bytes[128];
};

#define PIN_MAX_DOMAINS 256

/* Number of slots ever used, 0 to n - 1. Never decreases, except to 0 in a forked child. */
uint32_t pin_domain_count(void);

extern struct pin_domain pin_domains[PIN_MAX_DOMAINS];

/* With pthread_rwlock_wrlock() or _rdlock(). */
static inline void pin_domain_lock(struct pin_domain *domain, int (*take)(pthread_rwlock_t *))
{
	pin_assert_may_wait(PIN_RANK_DOMAIN);
	take(&domain->lock);
	pin_note_rank(PIN_RANK_DOMAIN);
}

static inline void pin_domain_unlock(struct pin_domain *domain)
{
	pin_note_rank(PIN_RANK_DOMAIN);
	pthread_rwlock_unlock(&domain->lock);
}

/* Internal to pin_domain_find(). */
struct pin_domain *pin_domain_search(const struct ibv_pd *pd);

/* Whether the PD is in the first slot: most programs have one PD. */
static inline bool pin_domain_is_first(const struct ibv_pd *pd)
{
	return atomic_load_explicit(&pin_domains[0].pd, memory_order_acquire) == pd;
}

/* The domain of a PD, armed or not. NULL if its allocation was not seen. Lock-free. */
static inline struct pin_domain *pin_domain_find(const struct ibv_pd *pd)
{
	if (PIN_LIKELY(pd && pin_domain_is_first(pd)))
		return &pin_domains[0];
	return pin_domain_search(pd);
}

static inline bool pin_access_set_is_in_use(const struct pin_access_set *set)
{
	return atomic_load_explicit(&set->n_needed, memory_order_relaxed) >= PIN_IN_USE;
}

/* Counts a request, or a look of the registrar, towards that. */
static inline void pin_access_set_count(struct pin_access_set *set)
{
	uint32_t n = set->n_needed;

	if (n < PIN_IN_USE)
		atomic_compare_exchange_strong(&set->n_needed, &n, n + 1);
}

/* A domain's access set with these rights, made or not. */
static inline struct pin_access_set *pin_access_set_of(const struct pin_domain *domain,
						       unsigned access)
{
	return &domain->access_sets[(access & 0xf) | (access >> 16 & 0x10)];
}

/*
 * Iterates over the access sets of a domain, or of all domains if that is NULL: the first if
 * `last` is NULL, NULL at the end.
 */
struct pin_access_set *pin_access_set_next(struct pin_domain *domain,
					   struct pin_access_set *last);

/*
 * Adds a domain, not armed, for a PD that was allocated and whose address is not
 * registered here.
 */
void pin_domain_add(struct ibv_pd *pd);

/* A context's adapter; if no domain on it is known, one without a name and memory regions. */
struct pin_adapter *pin_adapter_of(const struct ibv_context *context);

/* Forgets all PDs, in a forked child. Async-signal-safe. */
void pin_domain_forget_all(void);
