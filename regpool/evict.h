/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chooses the memory region to deregister when room is needed: of those without users, in all
 * domains or those of one adapter, the least recently used. That takes a look at each of them,
 * which is little beside what deregistering one takes.
 */
#ifndef PIN_EVICT_H
#define PIN_EVICT_H

#include "regpool/ibverbs.h"

#include <errno.h>
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

/*
 * Helps a verb that fails for lack of locked memory, or of the objects that an adapter can
 * have, if memory regions of the heap have more of it than is left: evicts idle ones, those of
 * that adapter unless it may be locked memory, and has the call made again. A call that fails
 * otherwise is made once.
 */
struct pin_retry {
	uint64_t destroyed; /* pin_state.destroyed when it was last called */
	uint64_t left;	    /* how often it may be repeated */
	const char *device; /* the adapter's name */
	size_t n_bytes;	    /* that the call locks, if it is known */
};

struct pin_retry pin_retry_begin(const struct ibv_context *context, size_t n_bytes);

/*
 * Whether to repeat a call that failed with this errno: a memory region was deregistered since.
 * That ends, even if other threads register as fast as this evicts. Sets errno to `error`. The
 * caller must not have an entry BUSY.
 */
bool pin_retry_evict(struct pin_retry *room, int error);

/*
 * Makes a call for a context that returns what it creates, or NULL and sets errno. Before it is
 * repeated, the statement that may follow restores its arguments: providers change attributes,
 * even if they fail.
 */
#define PIN_CREATE(context, call, ...)                                            \
	({                                                                        \
		struct pin_retry retry_ = pin_retry_begin(context, 0);            \
		__typeof__(call) created_;                                        \
                                                                                  \
		while (!(created_ = (call)) && pin_retry_evict(&retry_, errno)) { \
			__VA_ARGS__;                                              \
		}                                                                 \
		created_;                                                         \
	})

/*
 * Evicts while more is registered than the limits allow now: the program may have registered
 * more itself since, or a limit have been lowered. Preserves errno. As above for BUSY.
 */
void pin_evict_excess(void);

#endif
