/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What becomes of a protection domain from its allocation to its end.
 *
 * Only a PD that was seen when it was allocated is served: its context is looked after
 * since then (provider.h). Whoever found ibv_alloc_pd() with dlsym is left alone. (NCCL
 * does so; its ibv_reg_mr() still comes by here, through libibverbs' own PLT.) That
 * leaves out parent domains as well.
 *
 * A domain is armed by its first registration of heap memory or by
 * pinalloc_attach().
 */
#ifndef PIN_DOMAIN_H
#define PIN_DOMAIN_H

#include "allocator/options.h"
#include "regpool/registry.h"

/* PINALLOC_ACCESS as the rights of a memory region. */
static inline unsigned pin_domain_rights(void)
{
	unsigned rights = 0;

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
