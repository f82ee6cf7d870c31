/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Protection domains the program uses, and for each the memory regions over the heap.
 *
 * Only a PD that was seen when it was allocated is served: its context is looked after
 * since then (provider.h). Whoever found ibv_alloc_pd() with dlsym is left alone. (NCCL
 * does so; its ibv_reg_mr() still comes by here, through libibverbs' own PLT.) That
 * leaves out parent domains as well.
 *
 * A domain is armed by its first registration of heap memory or by
 * pinalloc_attach(). Its keys are kept by class: each set of rights that occurs has
 * memory regions of its own, so that no key has a right that was not asked for, nor
 * one without order where order was.
 *
 * The registry's lock (domain.c) and a domain's are never held together. No lock is
 * held by readers of keys, and none is ever taken under a lock of jemalloc's.
 */
#ifndef PIN_DOMAIN_H
#define PIN_DOMAIN_H

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
	struct pin_table covering; /* granule of the heap → number of an entry + 1 (keys.h) */
	struct pin_table entries;  /* struct pin_entry */
	struct pin_table registrations; /* struct pin_registration, by the same numbers */
	struct pin_table starting;	/* granule → the first entry that starts there */
	struct pin_table failures;	/* granule → struct pin_failure */
	_Atomic size_t room;		/* below this number both may be touched */
	_Atomic uint32_t n_places;	/* numbers ever used */
	_Atomic bool armed;
	_Atomic uint32_t ahead; /* PIN_AHEAD_*, counted down; 0: the registrar works on it */
	_Atomic size_t cell;	/* bytes: choice.h */
	pthread_mutex_t lock;	/* see keys.h; guards what follows */
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
uint32_t pin_domain_count(void);
struct pin_domain *pin_domain_at(uint32_t i);

/* Internal to pin_domain_find(). */
extern struct pin_domain pin_domains[PIN_MAX_DOMAINS];
struct pin_domain *pin_domain_search(const struct ibv_pd *pd);

/* Whether its domain is the first. Most programs have one. */
static inline bool pin_domain_is_first(const struct ibv_pd *pd)
{
	return atomic_load_explicit(&pin_domains[0].pd, memory_order_acquire) == pd;
}

/* The domain of a PD that was seen, armed or not; else NULL. Lock-free. */
static inline struct pin_domain *pin_domain_find(const struct ibv_pd *pd)
{
	if (PIN_LIKELY(pd && pin_domain_is_first(pd)))
		return &pin_domains[0];
	return pin_domain_search(pd);
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

/* PINALLOC_ACCESS as the rights of a memory region. */
unsigned pin_domain_rights(void);

/* In a forked child: no PD is known any more. Async-signal-safe. */
void pin_domain_forget_all(void);

/*
 * A PD was allocated or imported: makes its domain, not armed. Whatever was known
 * at this address is of a PD that is gone.
 */
void pin_domain_notice(struct ibv_pd *pd);

/*
 * Arms the class with these rights of the PD's domain, if it is not. The first one decides
 * what `most` may be in others until the domain is disarmed. Starts the registrar in eager
 * mode. Returns 0 and the domain; -EEXIST when it is armed with fewer rights; -ENOMEM when
 * the PD was not seen, there is no address space, or registration is off.
 */
int pin_domain_arm(struct ibv_pd *pd, unsigned access, unsigned most,
		   struct pin_domain **domain);

/*
 * ibv_dealloc_pd(): deregisters what there is, then calls the real one. Returns
 * its result, or EBUSY when the program still holds registrations, as the kernel
 * would. Whenever it fails the domain goes on working.
 */
int pin_domain_dealloc(struct ibv_pd *pd);

/*
 * ibv_unimport_pd() comes next. The kernel's PD is another process' or context's and
 * lives on, and so must what the program holds: only memory regions nobody uses are
 * deregistered. The others' MRs go with the context.
 */
void pin_domain_unimport(struct ibv_pd *pd);

/* ibv_close_device() comes next, which no MR survives: deregisters all. */
void pin_domain_close(const struct ibv_context *context);

/*
 * pinalloc_attach(): arms with these rights and no others, registers ahead, and looks keys up
 * there. Returns as pin_domain_arm().
 */
int pin_domain_attach(struct ibv_pd *pd, unsigned access);

/*
 * pinalloc_detach(): gives up the looked-up keys and every memory region nobody uses,
 * and stops registering ahead. Returns 0, or -ENOENT when it is not armed.
 */
int pin_domain_disarm(struct ibv_pd *pd);

#endif
