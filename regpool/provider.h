/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What libibverbs asks of a device's provider when somebody calls its own functions past the
 * interposers: because they were found with dlsym(), or by a library of a scope of its own
 * (RTLD_DEEPBIND). The real ibv_dereg_mr() reads of a proxy what the provider's copy has, and
 * hands it to the provider, which would deregister the heap's memory region and free() the
 * proxy. So the functions of the provider that may be given a proxy, or a PD with such memory
 * regions, are taken over in each context.
 *
 * libibverbs keeps them in memory whose layout changes from release to release. But it leaves
 * each in the public ibv_context.ops as well, as "_compat_…", and of those it makes no use: the
 * one word of the private memory that is the same is the one to change, and what is public
 * stays to be called from here.
 */
#ifndef PIN_PROVIDER_H
#define PIN_PROVIDER_H

#include "regpool/ibverbs.h"

/*
 * Takes them over in a context, before a PD of it has a memory region. Idempotent. When they
 * are not found, nothing is changed, and it is said once. Thread-safe.
 */
void pin_provider_take(struct ibv_context *context);

#endif
