/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/room.h"
#include "regpool/budget.h"
#include "regpool/evict.h"
#include "regpool/ibverbs.h"
#include "regpool/pool.h"
#include "regpool/registry.h"

/* Beyond all there are at the beginning: what other threads may register meanwhile. */
#define MORE 64

struct pin_room pin_room_begin(const struct ibv_context *context)
{
	uint64_t destroyed = pin_pool.destroyed, created = pin_pool.created;

	return (struct pin_room){destroyed, created - destroyed + MORE,
				 pin_registry_device(context)};
}

bool pin_room_make(struct pin_room *room, int error)
{
	const char *device = pin_budget_may_lack(error) ? NULL : room->device;
	bool made = false;

	if (pin_ibverbs_out_of_room(error) && !pin_pool_off() && room->left) {
		made = pin_evict_one(device, 0) || pin_pool.destroyed != room->destroyed;
		room->destroyed = pin_pool.destroyed;
		room->left--;
	}
	errno = error;
	return made;
}

void pin_room_trim(void)
{
	struct pin_room room = pin_room_begin(NULL);
	int error = errno;

	while (!pin_pool_off() && room.left-- && pin_budget_is_exceeded() &&
	       pin_evict_one(NULL, 0))
		;
	errno = error;
}
