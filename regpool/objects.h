/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects of an adapter that programs create by functions of the header (ibv_create_cq_ex() and
 * so on): those call through tables in the context, which are hooked here. With evict.h, none
 * fails because of memory regions that nobody uses. What libibverbs exports is interposed
 * (preload/verbs.c).
 */
#ifndef PIN_OBJECTS_H
#define PIN_OBJECTS_H

#include <infiniband/verbs.h>

/* Hooks a context's tables. Repeating it is harmless. */
void pin_objects_hook(struct ibv_context *context);

#endif
