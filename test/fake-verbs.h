/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A libibverbs without a device, for the unit tests: it keeps the kernel's rules (a PD with MRs
 * is busy, locked memory is limited, remote write needs local write) and fails on demand.
 */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include "regpool/ibverbs.h"

#include <stdatomic.h>

/* It takes all that libibverbs takes. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

struct fake_verbs {
	_Atomic size_t limit;	     /* bytes that may be registered, SIZE_MAX for all */
	_Atomic unsigned max_mr;     /* MRs, and other objects, that may live */
	_Atomic int full_errno;	     /* what one more than that fails with */
	_Atomic size_t max_mr_size;  /* as ibv_query_device() tells it */
	_Atomic size_t registered;   /* bytes that are */
	_Atomic unsigned live;	     /* MRs */
	_Atomic unsigned objects;    /* others */
	_Atomic unsigned made;	     /* MRs ever */
	_Atomic unsigned tried;	     /* registrations asked for */
	_Atomic unsigned wrong;	     /* rules broken: a PD gone with MRs */
	_Atomic unsigned gone_each;  /* of so many one fails with EIO, if it is not 0 */
	_Atomic unsigned fail_next;  /* registrations to fail */
	_Atomic int fail_errno;	     /* with this */
	_Atomic int rereg_errno;     /* what ibv_rereg_mr() fails with, if not 0 */
	_Atomic int fork_status;     /* enum ibv_fork_status */
	_Atomic unsigned fork_inits; /* calls of the real ibv_fork_init */
	/* What its functions call first, or NULL. */
	void (*_Atomic on_call)(void);
	struct ibv_context_ops ops; /* of each new context */
};
extern struct fake_verbs fake_verbs;

/* Puts it in place of libibverbs and begins anew. Once, before any other call. */
void fake_verbs_install(void);

/* A device's context; lives for ever. */
struct ibv_context *fake_context(void);

/* That of another device. */
struct ibv_context *fake_context_elsewhere(void);

/* Another one of the first device, which does not. */
struct ibv_context *fake_context_new(void);

/* Closes that one: what is registered on it has no keys any more. */
void fake_context_end(struct ibv_context *context);

/* Calls a function for each MR that is registered in a PD; it may deregister it. */
void fake_for_each_mr(const struct ibv_pd *pd, int (*call)(struct ibv_mr *mr));

/* The access an MR was really registered with, given any struct ibv_mr's lkey. */
unsigned fake_access_of(uint32_t lkey);

/*
 * Whether an adapter would let these keys touch the range: they name an MR that
 * is registered now, in this PD, and covers it.
 */
bool fake_keys_reach(uint32_t lkey, uint32_t rkey, const struct ibv_pd *pd, const void *addr,
		     size_t length);

/* Whether an lkey, or if there are remote rights among these, an rkey permits that. */
bool fake_key_permits(uint32_t key, unsigned access, const struct ibv_pd *pd, const void *addr,
		      size_t length);

/* Of the same MR. */
uint32_t fake_lkey_of(uint32_t rkey);

/*
 * Of fake-adapter.c: takes the pages of a registration, and gives them up. 0, or an errno
 * value.
 */
__attribute__((weak)) int fake_adapter_pin(uint32_t lkey, void *addr, size_t length,
					   unsigned access);
__attribute__((weak)) void fake_adapter_unpin(uint32_t lkey);

/* Of fake-pins.c. */
__attribute__((weak)) void fake_pins_start(void);
int fake_pins_add(uint32_t lkey, uintptr_t start, size_t n_bytes);
bool fake_pins_move(uint32_t to_key, char *to, uint32_t from_key, char *from, size_t n_bytes);

/* ibv_import_pd() and ibv_unimport_pd(), which the library leaves alone. */
struct ibv_pd *fake_import_pd(struct ibv_context *context, uint32_t handle);
void fake_unimport_pd(struct ibv_pd *pd);

/* Another struct for an MR of this handle. */
struct ibv_mr *fake_import_mr(struct ibv_pd *pd, uint32_t handle);

/* Something that is no MR begins to use the PD (1) or ends (-1): while it does, the PD is busy.
 */
void fake_pd_use(const struct ibv_pd *pd, int n);

/*
 * Something that is no MR, but counts as one for fake_verbs.max_mr, begins. False, with errno,
 * if there is no room; otherwise it ends with fake_object_end().
 */
bool fake_object_begin(void);
void fake_object_end(void);

#endif
