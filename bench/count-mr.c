/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded into a program without pinalloc, counts its memory registrations. At
 * exit the number goes to the file named by COUNT_MR with the MPI rank behind it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#undef ibv_reg_mr

static atomic_ulong count;

/* The real function; in libibverbs ibv_reg_mr() comes through here too. */
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned access)
{
	static struct ibv_mr *(*real)(struct ibv_pd *, void *, size_t, uint64_t, unsigned);

	if (!real)
		real = (__typeof__(real))dlvsym(
			dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD), "ibv_reg_mr_iova2",
			"IBVERBS_1.8");
	count++;
	return real(pd, addr, length, iova, access);
}

__attribute__((destructor)) static void end(void)
{
	const char *file = getenv("COUNT_MR"), *rank = getenv("OMPI_COMM_WORLD_RANK");
	char path[4096];
	FILE *out;

	if (!count || !file)
		return;
	snprintf(path, sizeof path, "%s.%s", file, rank ? rank : "0");
	out = fopen(path, "w");
	if (out) {
		fprintf(out, "%lu\n", count);
		fclose(out);
	}
}
