/* SPDX-License-Identifier: BSD-2-Clause */
/* Registration with verbs, which the library may serve. */
#include "bench/bench.h"
#include "bench/pairs.h"

static struct ibv_pd *pd;

void pairs_open(void)
{
	need((pd = ibv_alloc_pd(rdma_open())));
}

void pairs_once(void *buffer, size_t n_bytes)
{
	bench_pair(pd, buffer, n_bytes);
}
