/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded instead of the library: counts the registrations that a program makes, those of 1
 * MiB and more separately, and prints them at exit.
 */
#include <config.h>

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#undef ibv_reg_mr

#define LARGE ((size_t)1 << 20)

static atomic_ulong all, large;

/* Not RTLD_NEXT, which finds nothing if a plugin opened libibverbs. */
static void *real(const char *name, const char *version)
{
	void *handle = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void *function = handle ? dlvsym(handle, name, version) : NULL;

	if (!function)
		abort();
	return function;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned access)
{
	__typeof__(&ibv_reg_mr_iova2) next = real("ibv_reg_mr_iova2", "IBVERBS_1.8");

	atomic_fetch_add(&all, 1);
	if (length >= LARGE)
		atomic_fetch_add(&large, 1);
	return next(pd, addr, length, iova, access);
}

/* The real one calls the one above. */
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

__attribute__((destructor)) static void say(void)
{
	if (all)
		fprintf(stderr, "registrations %lu all %lu\n", large, all);
}
