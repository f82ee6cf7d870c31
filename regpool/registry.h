/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The protection domains there are, and of each the classes of memory regions over the heap:
 * each set of rights that occurs has memory regions of its own, so that no key has a right that
 * was not asked for, nor one without order where order was.
 *
 * The registry's lock (registry.c) and a domain's are never held together. No lock is
 * held by readers of keys, and none is ever taken under a lock of jemalloc's.
 */
#ifndef PIN_REGISTRY_H
#define PIN_REGISTRY_H

#include "allocator/table.h"
#include "regpool/ibverbs.h"

#include <pthread.h>
#include <stdatomic.h>

/* The IBV_ACCESS_* that memory regions of the heap can have; every set of them is a class. */
#define PIN_CLASS_RIGHTS 0x10000fu
#define PIN_CLASSES	 32

_Static_assert(PIN_CLASS_RIGHTS == (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
				    IBV_ACCESS_RELAXED_ORDERING),
	       "pin_class_of() takes the last four bits and bit 20");

/* The number of the class with exactly these rights, and the rights of one. */
static inline unsigned pin_class_of(unsigned access)
{
	return (access & 0xf) | (access >> 16 & 0x10);
}

static inline unsigned pin_class_rights(unsigned number)
{
	return (number & 0xf) | (number & 0x10) << 16;
}

/* Whether verbs allow a memory region with them: remote writing needs local writing. */
static inline bool pin_class_is_sound(unsigned access)
{
	return access & IBV_ACCESS_LOCAL_WRITE ||
	       !(access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC));
}

/*
 * The registrar works on the class that is armed first, and on those that are attached. The
 * rights of others may be those of a few buffers only, and each class that has the whole heap
 * counts against locked memory once more: it waits until so many requests had to be registered.
 */
#define PIN_AHEAD_LATER 4u
#define PIN_AHEAD_NEVER UINT32_MAX

struct pin_class {
	struct pin_table covering; /* granule of the heap → number of an entry + 1 (places.h) */
	struct pin_table entries;	/* struct pin_entry */
	struct pin_table registrations; /* struct pin_registration, by the same numbers */
	struct pin_table starting;	/* granule → the first entry that starts there */
	struct pin_table failures;	/* granule → struct pin_failure */
	_Atomic size_t room;		/* below this number both may be touched */
	_Atomic uint32_t n_places;	/* numbers ever used */
	_Atomic bool armed;
	_Atomic uint32_t ahead; /* PIN_AHEAD_*, counted down; 0: the registrar works on it */
	_Atomic size_t cell;	/* bytes: choice.h */
	pthread_mutex_t lock;	/* see places.h; guards what follows */
	size_t credit;		/* bytes that may be registered anew */
	size_t longest;		/* bytes of an entry, ever */
	uint32_t free;		/* lists of entries, see places.c: those nobody has, */
	uint32_t leftovers;	/* and some that are kept only by their users */
};

struct pin_domain {
	_Atomic(struct ibv_pd *) pd; /* NULL: the slot is free */
	_Atomic(const struct ibv_context *) context;
	_Atomic uint32_t generation; /* proxies of an earlier one hold nothing */
	/*
	 * Against teardown: shared while the registrar registers one range, and held
	 * while a PD is deallocated, which goes first. Looking keys up does not take it.
	 */
	pthread_rwlock_t lock;
	_Atomic bool is_ending;	   /* libibverbs is deallocating the PD */
	struct pin_class *classes; /* PIN_CLASSES of them */
	_Atomic uint32_t known;	   /* a bit for each that was armed once and has its tables */
	_Atomic unsigned most;	   /* rights that a class may be armed with */
	_Atomic(struct pin_class *) lookup; /* what pinalloc_lookup() answers from */
	char device[64];
	size_t max_mr_size;	  /* bytes; 0 while nobody has asked the device */
	_Atomic uint64_t created; /* real registrations, for the report */
	_Atomic size_t registered, registered_peak;
};

#define PIN_MAX_DOMAINS 256

/* Slots ever used: 0 … n - 1; never decreases, but is 0 in a forked child. */
uint32_t pin_registry_count(void);
struct pin_domain *pin_registry_at(uint32_t i);

/* Internal to pin_registry_find(). */
extern struct pin_domain pin_registry[PIN_MAX_DOMAINS];
struct pin_domain *pin_registry_search(const struct ibv_pd *pd);

/* Whether its domain is the first. Most programs have one. */
static inline bool pin_registry_is_first(const struct ibv_pd *pd)
{
	return atomic_load_explicit(&pin_registry[0].pd, memory_order_acquire) == pd;
}

/* The domain of a PD that was seen, armed or not; else NULL. Lock-free. */
static inline struct pin_domain *pin_registry_find(const struct ibv_pd *pd)
{
	if (PIN_LIKELY(pd && pin_registry_is_first(pd)))
		return &pin_registry[0];
	return pin_registry_search(pd);
}

/* The rights of the domain's class, exactly. */
static inline unsigned pin_class_access(const struct pin_domain *domain,
					const struct pin_class *keys)
{
	return pin_class_rights((unsigned)(keys - domain->classes));
}

/* The next of the domain's classes that occur, behind NULL the first; NULL at their end. */
static inline struct pin_class *pin_class_next(struct pin_domain *domain,
					       const struct pin_class *last)
{
	unsigned from = last ? (unsigned)(last - domain->classes) + 1 : 0;
	uint64_t known = atomic_load_explicit(&domain->known, memory_order_acquire);

	known = known >> from << from;
	return known ? &domain->classes[__builtin_ctzll(known)] : NULL;
}

/*
 * A PD was allocated or imported, and its address has no domain: makes one, not armed, where
 * look-ups are answered with these rights until that is changed.
 */
void pin_registry_add(struct ibv_pd *pd, unsigned access);

/* In a forked child: no PD is known any more. Async-signal-safe. */
void pin_registry_forget(void);

#endif
