/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which memory region gives way when room is wanted: of those nobody uses the one
 * that was taken longest ago, in any domain.
 */
#ifndef PIN_EVICT_H
#define PIN_EVICT_H

#include "allocator/base.h"

#include <stdatomic.h>

/*
 * Deregisters it. Returns false if there is none, or if all of them would not make room
 * for one of `wanted` bytes. With 0, for something outside the budget, it also waits
 * for one that another thread is deregistering: not for a caller who has an entry BUSY.
 */
bool pin_evict_one(size_t wanted);

/*
 * What pin_registration.used_at is read from: ticks at each registration. Declared hidden, as
 * it is defined, so that a request reads it without the global offset table.
 */
extern _Atomic uint32_t pin_evict_clock __attribute__((visibility("hidden")));

#endif
