/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hooks functions that a context has, because they reach libibverbs or the provider and bypass
 * the interposers (preload/verbs.c):
 *
 * The provider's, for calls of libibverbs' own functions: those found with dlsym(), or made
 * by a library loaded with RTLD_DEEPBIND. The real ibv_dereg_mr() would pass a proxy to the
 * provider, which would deregister the heap's memory region and free() the proxy. So in each
 * context the provider's functions that may be given a proxy, or a PD with such memory regions,
 * are replaced.
 *
 * libibverbs keeps the function pointers in private memory whose layout differs between
 * releases. But it also stores each in the public ibv_context.ops, as "_compat_...", which it
 * does not use. The one word of the private memory with the same value is the one to replace,
 * and the public copy stays available for calls from here.
 *
 * Those that create objects of the adapter by functions of the header, ibv_create_cq_ex() and
 * so on, which call through tables in the context. With evict.h, none fails because of memory
 * regions that nobody uses.
 */
#ifndef PIN_PROVIDER_H
#define PIN_PROVIDER_H

#include "regpool/ibverbs.h"

/*
 * Replaces them in a context, before a PD of it has a memory region. If the provider's are not
 * found, leaves those and logs that once. Idempotent. Thread-safe.
 */
void pin_provider_hook(struct ibv_context *context);

#endif
