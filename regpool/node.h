/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory policy around registrations: pages that a registration makes resident are allocated on
 * the memory node of the heap's span, whichever thread registers them.
 */
#ifndef PIN_NODE_H
#define PIN_NODE_H

#include "allocator/base.h"

/* Call before the first registration. Idempotent. Thread-safe. */
void pin_node_prepare(void);

/*
 * Call around a registration. A policy the thread has set itself, with set_mempolicy(2) or
 * numactl(8), is kept; pin_node_enter() then returns false. Costs nothing on a machine with one
 * node.
 */
bool pin_node_enter(uint32_t node);
void pin_node_leave(bool entered);

#endif
