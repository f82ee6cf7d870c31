/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a user can set up so that the promise does not hold: found when it matters,
 * and named in one line with its cure.
 */
#ifndef PIN_CONFLICTS_H
#define PIN_CONFLICTS_H

#include "allocator/base.h"

/*
 * Whether malloc is ours. If not, says whose it is. Fatal when it is ours and its
 * memory is not from the reserved range. From the constructor.
 */
bool pin_conflicts_heap_is_ours(void);

/* Says, once, what in the environment fights with us. When a device is opened. */
void pin_conflicts_say_settings(void);

#endif
