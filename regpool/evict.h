/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chooses the memory region to deregister when room is needed: of those without users, in all
 * domains or those of one adapter, the least recently used. That takes a look at each of them,
 * which is little beside what deregistering one takes.
 */
#ifndef PIN_EVICT_H
#define PIN_EVICT_H

#include "allocator/base.h"

#include <stdatomic.h>

/*
 * Deregisters it. `device` names the adapter that has no room, which others cannot make; NULL
 * if it is for locked memory, which all share. Returns false if there is none, or if
 * deregistering all of them would not make room for `wanted` bytes. With `wanted` 0, for a
 * request outside the budget, it also waits for an entry that another thread is deregistering;
 * the caller must not have an entry BUSY.
 */
bool pin_evict_one(const char *device, size_t wanted);

/*
 * The source of pin_entry.used_at; advances with each registration. Declared hidden, as
 * it is defined, so that reading it does not go through the global offset table.
 */
extern _Atomic uint32_t pin_evict_clock __attribute__((visibility("hidden")));

#endif
