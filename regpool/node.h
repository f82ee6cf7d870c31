/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * On which memory node the pages come to lie that a registration faults in: that of the
 * heap's span there, as if a thread of that node had touched them, whichever thread registers.
 */
#ifndef PIN_NODE_H
#define PIN_NODE_H

#include "allocator/base.h"

/* Once, before the first registration. */
void pin_node_prepare(void);

/*
 * Around a registration. What the thread has set for itself, by
 * set_mempolicy(2) or numactl(8), stays. Costs nothing on a machine of one node.
 */
bool pin_node_enter(uint32_t node);
void pin_node_leave(bool entered);

#endif
