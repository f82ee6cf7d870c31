/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registration in a domain of libfabric's verbs provider, through its cache if there is a
 * memory monitor (FI_MR_CACHE_MONITOR).
 */
#include "bench/bench.h"
#include "bench/pairs.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

static struct fid_domain *domain;

void pairs_open(void)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;

	need(hints);
	hints->caps = FI_MSG | FI_RMA;
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY |
				      FI_MR_VIRT_ADDR;
	need((hints->fabric_attr->prov_name = strdup("verbs")));
	need(!fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	need(!fi_fabric(info->fabric_attr, &fabric, NULL));
	need(!fi_domain(fabric, info, &domain, NULL));
}

void pairs_once(void *buffer, size_t n_bytes)
{
	const uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ |
				FI_REMOTE_WRITE;
	struct fid_mr *mr;

	need(!fi_mr_reg(domain, buffer, n_bytes, access, 0, 0, 0, &mr, NULL));
	need(!fi_close(&mr->fid));
}
