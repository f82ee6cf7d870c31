/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/node.h"
#include "allocator/os.h"

#include <pthread.h>

static bool several;

static void look(void)
{
	several = pin_os_has_nodes();
}

void pin_node_prepare(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, look);
}

bool pin_node_enter(uint32_t node)
{
	return several && pin_os_prefer_node(node);
}

void pin_node_leave(bool entered)
{
	if (entered)
		pin_os_prefer_none();
}
