/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "regpool/node.h"
#include "allocator/os.h"

#include <pthread.h>

static bool has_several_nodes;

static void find_nodes(void)
{
	has_several_nodes = pin_os_has_nodes();
}

void pin_node_prepare(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_nodes);
}

bool pin_node_enter(uint32_t node)
{
	return has_several_nodes && pin_os_prefer_node(node);
}

void pin_node_leave(bool entered)
{
	if (entered)
		pin_os_prefer_none();
}
