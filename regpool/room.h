/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Helps verbs that fail for lack of locked memory, or of the objects that an adapter can have,
 * if memory regions of the heap have more of it than is left. They must not be the reason, so
 * those that nobody uses are deregistered, those of that adapter unless it may be locked
 * memory, and the call is made again. A call that fails otherwise is made once.
 */
#ifndef PIN_ROOM_H
#define PIN_ROOM_H

#include "regpool/ibverbs.h"

#include <errno.h>

struct pin_room {
	uint64_t destroyed; /* pin_pool.destroyed when it was last called */
	uint64_t left;	    /* how often it may be repeated */
	const char *device; /* the adapter's name */
	size_t n_bytes;	    /* that the call locks, if it is known */
};

struct pin_room pin_room_begin(const struct ibv_context *context, size_t n_bytes);

/*
 * Whether to repeat a call that failed with this errno: a memory region was deregistered since.
 * That ends, even if other threads register as fast as this evicts. Sets errno to `error`. The
 * caller must not have an entry BUSY.
 */
bool pin_room_make(struct pin_room *room, int error);

/*
 * Makes a call for a context that returns what it creates, or NULL and sets errno. Before it is
 * repeated, the statement that may follow restores its arguments: providers change attributes,
 * even if they fail.
 */
#define PIN_CREATE(context, call, ...)                                         \
	({                                                                     \
		struct pin_room room_ = pin_room_begin(context, 0);            \
		__typeof__(call) created_;                                     \
                                                                               \
		while (!(created_ = (call)) && pin_room_make(&room_, errno)) { \
			__VA_ARGS__;                                           \
		}                                                              \
		created_;                                                      \
	})

/*
 * Evicts while more is registered than the limits allow now: the program may have registered
 * more itself since, or a limit have been lowered. Preserves errno. As above for BUSY.
 */
void pin_room_trim(void);

#endif
