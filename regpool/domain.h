/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The life of a protection domain, from its allocation to its deallocation.
 *
 * Only a PD whose allocation was seen is served, because its context has been hooked since then
 * (provider.c). So a PD is left to libibverbs if the program found ibv_alloc_pd() with dlsym();
 * NCCL does, although its ibv_reg_mr() calls still arrive here through the PLT of libibverbs.
 * Parent domains, and PDs imported from another process, are left to libibverbs as well.
 *
 * A domain is armed by its first request or look-up of heap memory, or by pinalloc_enable().
 * Unless noted otherwise the functions are thread-safe, and must not be called from inside
 * malloc or a signal handler.
 */
#pragma once

#include "allocator/options.h"
#include "regpool/domains.h"
#include "regpool/state.h"

struct pin_range;

/* PINALLOC_ACCESS as IBV_ACCESS_* flags, which have the same values. */
_Static_assert((int)PIN_ACCESS_LOCAL == IBV_ACCESS_LOCAL_WRITE &&
		       (int)PIN_ACCESS_WRITE == IBV_ACCESS_REMOTE_WRITE &&
		       (int)PIN_ACCESS_READ == IBV_ACCESS_REMOTE_READ &&
		       (int)PIN_ACCESS_ATOMIC == IBV_ACCESS_REMOTE_ATOMIC,
	       "rights are taken as they are");

/*
 * Adds a domain, not armed, for a PD that was allocated. Retires an older domain at
 * the same address, whose PD is gone.
 */
void pin_domain_notice(struct ibv_pd *pd);

/*
 * Arms the access set with these rights in the PD's domain, if it is not armed. The first one
 * limits the rights of later sets to `max_access` until the domain is disarmed. Starts the
 * registrar in eager mode. Returns the set in *armed, or why it cannot be armed: PIN_RIGHTS
 * also if the domain is armed with fewer.
 */
enum pin_reason pin_domain_arm(struct ibv_pd *pd, unsigned access, unsigned max_access,
			       struct pin_access_set **armed);

/*
 * Look-ups find no keys any more of pages, in the heap or elsewhere: the program has replaced
 * them, or may have, and nobody knows. Returns how many bytes of the heap are never registered
 * again because of that.
 */
size_t pin_domain_withdraw(struct pin_range pages, bool are_replaced);

/*
 * ibv_dealloc_pd(3). Deregisters the heap's memory regions, then calls the real function.
 * Returns its result, or EBUSY, as the kernel would, while the program has registrations. After
 * a failure the domain continues to work.
 */
int pin_domain_dealloc(struct ibv_pd *pd);

/* Call before ibv_close_device(), which ends all MRs: deregisters all. */
void pin_domain_close(const struct ibv_context *context);

/*
 * pinalloc_enable(3). Arms exactly these rights, and registers ahead. Returns 0; -EEXIST if the
 * domain is armed with fewer; or as pin_state_error(). Preserves errno.
 */
int pin_domain_enable(struct ibv_pd *pd, unsigned access);

/*
 * pinalloc_disable(3). Releases keys that were looked up, deregisters memory regions without
 * users, and stops registering ahead until requests have to be registered again. Returns 0, or
 * -ENOENT if the domain is not armed.
 */
int pin_domain_disarm(struct ibv_pd *pd);
