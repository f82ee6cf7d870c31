/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Helps verbs that fail for lack of room: what they lack may be locked memory, the adapter's or
 *a control group's count of objects. Memory regions of the heap that nobody uses must not be
 *the reason, so they are deregistered, and the call is made again:
 *
 *	struct pin_room room = pin_room_begin();
 *
 *	do {
 *		cq = create_cq(...);
 *	} while (!cq && pin_room_make(&room, errno));
 */
#ifndef PIN_ROOM_H
#define PIN_ROOM_H

#include "allocator/base.h"

struct pin_room {
	uint64_t destroyed; /* pin_pool.destroyed when it was last called */
	uint64_t left;	    /* how often it may be repeated */
};

struct pin_room pin_room_begin(void);

/*
 * Whether to repeat a call that failed with this errno: a memory region was deregistered since.
 * That ends, even if other threads register as fast as this evicts. Sets errno to `error`. The
 * caller must not have an entry BUSY.
 */
bool pin_room_make(struct pin_room *room, int error);

/*
 * Evicts while more is registered than the limits allow now: the program may have registered
 * more itself since, or a limit be lower. Preserves errno. As above for BUSY.
 */
void pin_room_trim(void);

/*
 * Evicts while another process of the host is entitled to what this one has beyond its share
 * (host-budget.h), and lets requests try again that were refused, if there is room now. Called
 * from time to time.
 */
void pin_room_yield(void);

#endif
