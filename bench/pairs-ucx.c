/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registration in the memory domain of UCX's ib transports, which UCP uses for every buffer it
 * sends without copying. With UCX_IB_REG_METHODS=rcache it goes through the registration cache;
 * since UCX 1.16 that cache is UCP's, and this domain has none.
 */
#include "bench/bench.h"
#include "bench/pairs.h"

#include <uct/api/uct.h>

static uct_md_h md;

static uct_component_h find_ib(void)
{
	uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
	uct_component_h *list;
	unsigned n;

	need(uct_query_components(&list, &n) == UCS_OK);
	for (unsigned i = 0; i < n; i++)
		if (uct_component_query(list[i], &attr) == UCS_OK && !strcmp(attr.name, "ib"))
			return list[i];
	rdma_give_up("UCX has no component ib", __FILE__, __LINE__);
	return NULL;
}

void pairs_open(void)
{
	uct_component_h ib = find_ib();
	uct_md_config_t *config;

	need(uct_md_config_read(ib, NULL, NULL, &config) == UCS_OK);
	need(uct_md_open(ib, "rxe0", config, &md) == UCS_OK);
}

void pairs_once(void *buffer, size_t n_bytes)
{
	uct_mem_h memory;

	need(uct_md_mem_reg(md, buffer, n_bytes, UCT_MD_MEM_ACCESS_ALL, &memory) == UCS_OK);
	need(uct_md_mem_dereg(md, memory) == UCS_OK);
}
