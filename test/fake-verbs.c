/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "test/fake-verbs.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct fake_mr {
	struct ibv_mr mr;
	int type, access; /* as struct verbs_mr has them */
	size_t length;
};

struct fake_pd {
	struct ibv_pd pd;
	_Atomic unsigned mrs;
};

/* What the adapter knows of a key; reused after MOST_KEYS registrations. */
struct fake_key {
	_Atomic uint32_t lkey; /* 0 once deregistered */
	_Atomic unsigned access;
	_Atomic(struct ibv_mr *) mr; /* so that what a context keeps is no leak */
	_Atomic(const struct ibv_pd *) pd;
	_Atomic uintptr_t start, end;
};

#define MOST_KEYS (1u << 20)

struct fake_verbs fake_verbs;
static struct fake_key keys[MOST_KEYS];

static struct fake_key *key_of(uint32_t lkey)
{
	return &keys[lkey % MOST_KEYS];
}

static void make_key(struct ibv_mr *mr, unsigned access)
{
	struct fake_key *key = key_of(mr->lkey);

	key->access = access;
	key->mr = mr;
	key->pd = mr->pd;
	key->start = (uintptr_t)mr->addr;
	key->end = (uintptr_t)mr->addr + mr->length;
	key->lkey = mr->lkey;
}

static bool within_limit(size_t length)
{
	size_t now = atomic_fetch_add(&fake_verbs.registered, length) + length;

	if (now <= fake_verbs.limit)
		return true;
	atomic_fetch_sub(&fake_verbs.registered, length);
	return false;
}

static bool fails(void)
{
	unsigned left = fake_verbs.fail_next;

	while (left && !atomic_compare_exchange_weak(&fake_verbs.fail_next, &left, left - 1))
		;
	return left;
}

/* As the kernel has it: remote writing needs local writing. */
static bool are_sound(unsigned access)
{
	const unsigned writing = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

	return !(access & writing) || access & IBV_ACCESS_LOCAL_WRITE;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			     unsigned access)
{
	struct fake_mr *mr;

	(void)iova;
	fake_verbs.tried++;
	if (fails()) {
		errno = fake_verbs.fail_errno;
		return NULL;
	}
	if (length > fake_verbs.max_mr_size || !are_sound(access)) {
		errno = EINVAL;
		return NULL;
	}
	if (atomic_fetch_add(&fake_verbs.live, 1) >= fake_verbs.max_mr) {
		fake_verbs.live--;
		errno = fake_verbs.full_errno;
		return NULL;
	}
	if (!within_limit(length)) {
		fake_verbs.live--;
		errno = ENOMEM;
		return NULL;
	}
	mr = calloc(1, sizeof *mr);
	mr->mr = (struct ibv_mr){
		.context = pd->context, .pd = pd, .addr = addr, .length = length};
	mr->mr.lkey = ++fake_verbs.made;
	mr->mr.rkey = mr->mr.lkey | 0x80000000u;
	mr->access = (int)access;
	mr->length = length;
	make_key(&mr->mr, access);
	((struct fake_pd *)pd)->mrs++;
	return &mr->mr;
}

unsigned fake_access_of(uint32_t lkey)
{
	return key_of(lkey)->access;
}

bool fake_keys_reach(uint32_t lkey, uint32_t rkey, const struct ibv_pd *pd, const void *addr,
		     size_t length)
{
	const struct fake_key *key = key_of(lkey);
	uintptr_t start = (uintptr_t)addr;

	return key->lkey == lkey && rkey == (lkey | 0x80000000u) && key->pd == pd &&
	       key->start <= start && start + length <= key->end;
}

/* A second deregistration is a double free, which every sanitizer reports. */
static int dereg_mr(struct ibv_mr *ibv_mr)
{
	struct fake_mr *mr = (struct fake_mr *)ibv_mr;

	key_of(mr->mr.lkey)->lkey = 0;
	fake_verbs.registered -= mr->length;
	fake_verbs.live--;
	((struct fake_pd *)mr->mr.pd)->mrs--;
	free(mr);
	return 0;
}

static int rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		    int access)
{
	unsigned rights = key_of(mr->lkey)->access;

	if (flags & IBV_REREG_MR_CHANGE_PD)
		mr->pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		rights = (unsigned)access;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->addr = addr;
		mr->length = length;
	}
	make_key(mr, rights);
	return 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
	struct fake_pd *pd = calloc(1, sizeof *pd);

	pd->pd.context = context;
	return &pd->pd;
}

static struct ibv_pd *import_pd(struct ibv_context *context, uint32_t handle)
{
	(void)handle;
	return alloc_pd(context);
}

static int dealloc_pd(struct ibv_pd *pd)
{
	if (((struct fake_pd *)pd)->mrs)
		return EBUSY;
	free(pd);
	return 0;
}

/* The kernel's PD lives on with its MRs; only the struct goes. */
static void unimport_pd(struct ibv_pd *pd)
{
	if (!((struct fake_pd *)pd)->mrs)
		free(pd);
}

static int close_device(struct ibv_context *context)
{
	(void)context;
	return 0;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	memset(attr, 0, sizeof *attr);
	attr->max_mr = (int)fake_verbs.max_mr;
	attr->max_mr_size = fake_verbs.max_mr_size;
	return 0;
}

static int fork_init(void)
{
	fake_verbs.fork_inits++;
	fake_verbs.fork_status = IBV_FORK_ENABLED;
	return 0;
}

static enum ibv_fork_status is_fork_initialized(void)
{
	return (enum ibv_fork_status)fake_verbs.fork_status;
}

void fake_verbs_install(void)
{
	static const struct pin_ibverbs table = {
		.reg_mr_iova2 = reg_mr,
		.dereg_mr = dereg_mr,
		.rereg_mr = rereg_mr,
		.alloc_pd = alloc_pd,
		.dealloc_pd = dealloc_pd,
		.import_pd = import_pd,
		.unimport_pd = unimport_pd,
		.close_device = close_device,
		.query_device = query_device,
		.fork_init = fork_init,
		.is_fork_initialized = is_fork_initialized,
	};

	fake_verbs.limit = fake_verbs.max_mr_size = SIZE_MAX;
	fake_verbs.max_mr = INT_MAX;
	fake_verbs.full_errno = ENOMEM;
	fake_verbs.fork_status = IBV_FORK_UNNEEDED;
	pin_ibverbs_replace(&table);
}

static struct ibv_device device = {.name = "fake0"};

struct ibv_context *fake_context(void)
{
	static struct ibv_context context = {.device = &device};

	return &context;
}

struct ibv_context *fake_context_new(void)
{
	struct ibv_context *context = calloc(1, sizeof *context);

	context->device = &device;
	return context;
}

void fake_for_each_mr(const struct ibv_pd *pd, int (*call)(struct ibv_mr *mr))
{
	unsigned n = fake_verbs.made < MOST_KEYS ? fake_verbs.made : MOST_KEYS - 1;

	for (unsigned i = 0; i <= n; i++)
		if (keys[i].lkey && keys[i].pd == pd)
			call(keys[i].mr);
}
