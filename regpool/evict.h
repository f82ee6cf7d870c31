/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is idle never costs a program a registration: where a call finds no room, whatever limit
 * that is, memory regions without users are deregistered, and the call is made again. Then it
 * fails as without this library. Limits that are known only make it happen before the call.
 *
 * About the least recently used goes first: of the adapter that has no room, or of all if it
 * may be locked memory, which they share. An eviction goes on where the last one has found
 * something, and takes the one of a few entries that was used least recently: so it costs the
 * same beside few and many. If none of these is idle, it looks at what each lane has put last,
 * and if none of those is idle, at all entries.
 */
#pragma once

#include "regpool/domains.h"

#include <errno.h>
#include <stdatomic.h>

/*
 * Deregisters one of an adapter, of any if that is NULL. Returns how many bytes it had, or 0 if
 * none is idle. With `waits`, if none is idle but another thread has one BUSY, which it may be
 * deregistering, sleeps until it is not, and returns 1: the caller tries again, and must not
 * have an entry BUSY.
 */
size_t pin_evict_one(const struct pin_adapter *adapter, bool waits);

/* The source of pin_region.used_at; advances with each registration. */
extern PIN_HIDDEN _Atomic uint32_t pin_evict_clock;

/*
 * A call that takes n_bytes on this adapter has failed with this errno value: if that says that
 * there is no room, evicts as much at least, or all that is idle. Returns whether to make the
 * call again. `waits` as above.
 */
bool pin_evict_for(const struct pin_adapter *adapter, size_t n_bytes, int error, bool waits);

/*
 * The same for calls that are the program's own. One is made again until nothing is idle, as
 * other threads may take what was evicted for it. One of unknown size, 0, first for a granule,
 * and then for twice as much each time.
 */
struct pin_retry {
	struct pin_adapter *adapter;
	size_t n_bytes;
	unsigned left;	    /* how often it may be repeated */
	uint64_t destroyed; /* pin_state.destroyed before it was last called */
};

struct pin_retry pin_retry_begin(const struct ibv_context *context, size_t n_bytes);

/*
 * Whether to repeat a call that failed with this errno: a memory region was deregistered since.
 * Sets errno to `error`. The caller must not have an entry BUSY.
 */
bool pin_retry_evict(struct pin_retry *retry, int error);

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
 * Evicts until n_bytes more may be registered by the limits that are known now, unless so much
 * is in use that they may not. With 0, for the program may have registered more itself, or a
 * limit have been lowered. Returns whether there is room. Preserves errno.
 */
bool pin_evict_excess(size_t n_bytes);
