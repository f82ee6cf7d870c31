/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/room.h"
#include "regpool/budget.h"
#include "regpool/evict.h"
#include "regpool/ibverbs.h"
#include "regpool/pool.h"
#include "regpool/register.h"
#include "regpool/registry.h"

/* Beyond all there are at the beginning: what other threads may register meanwhile. */
#define MORE 64

struct pin_room pin_room_begin(const struct ibv_context *context, size_t n_bytes)
{
	uint64_t destroyed = pin_pool.destroyed, created = pin_pool.created;

	return (struct pin_room){destroyed, created - destroyed + MORE,
				 pin_registry_device(context), n_bytes};
}

bool pin_room_make(struct pin_room *room, int error)
{
	bool made = false;

	if (!pin_pool_off() && room->left &&
	    pin_register_lacks_room(room->device, error, room->n_bytes)) {
		const char *device = pin_register_lacks_memory(error, room->n_bytes)
					     ? NULL
					     : room->device;

		made = pin_evict_one(device, 0) || pin_pool.destroyed != room->destroyed;
		room->destroyed = pin_pool.destroyed;
		room->left--;
	}
	errno = error;
	return made;
}

void pin_room_trim(void)
{
	struct pin_room room = pin_room_begin(NULL, 0);
	int error = errno;

	while (!pin_pool_off() && room.left-- && pin_budget_is_exceeded() &&
	       pin_evict_one(NULL, 0))
		;
	errno = error;
}
