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

/* What the adapter knows of a key; reused after MOST_KEYS registrations, if it is not in use.
 */
struct fake_key {
	_Atomic uint32_t lkey; /* 0 once deregistered */
	_Atomic unsigned access;
	_Atomic(struct ibv_mr *) mr; /* so that what a context keeps is no leak */
	_Atomic(const struct ibv_pd *) pd;
	_Atomic uint32_t handle; /* of the PD, which may have several structs */
	_Atomic uintptr_t start, end;
};

#define MOST_KEYS    (1u << 20)
#define REMOTE	     0x80000000u /* what an rkey has beside its lkey */
#define MOST_PDS     4096u	 /* at the same time */
#define FIRST_HANDLE 1000u

struct fake_verbs fake_verbs;
static struct fake_key keys[MOST_KEYS];
static struct ibv_device device = {.name = "fake0"};

/* MRs of another device, which has room for all. */
static _Atomic unsigned n_elsewhere;

static bool is_elsewhere(const struct ibv_pd *pd)
{
	return pd->context && pd->context->device != &device;
}

/* A PD as the kernel has it. */
static struct kernel_pd {
	_Atomic uint32_t handle; /* 0: none */
	_Atomic unsigned users;
	_Atomic(const struct ibv_context *) context; /* which it ends with */
} kernel_pds[MOST_PDS];

static struct kernel_pd *kernel_pd(uint32_t handle)
{
	return &kernel_pds[handle % MOST_PDS];
}

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
	key->handle = mr->pd->handle;
	key->start = (uintptr_t)mr->addr;
	key->end = (uintptr_t)mr->addr + mr->length;
	key->lkey = mr->lkey;
}

static void begin_call(void)
{
	void (*on_call)(void) = fake_verbs.on_call;

	if (on_call)
		on_call();
}

static bool within_limit(size_t length)
{
	size_t now = fake_verbs.registered, limit = fake_verbs.limit;

	do {
		if (length > limit || now > limit - length)
			return false;
	} while (!atomic_compare_exchange_weak(&fake_verbs.registered, &now, now + length));
	return true;
}

static void *refuse(int error)
{
	errno = error;
	return NULL;
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

static bool take_one(_Atomic unsigned *counter)
{
	++*counter;
	if (fake_verbs.live + fake_verbs.objects - n_elsewhere <= fake_verbs.max_mr)
		return true;
	--*counter;
	errno = fake_verbs.full_errno;
	return false;
}

bool fake_object_begin(void)
{
	return take_one(&fake_verbs.objects);
}

void fake_object_end(void)
{
	fake_verbs.objects--;
}

void fake_pd_use(const struct ibv_pd *pd, int n)
{
	kernel_pd(pd->handle)->users += (unsigned)n;
}

static void count_mr(struct ibv_pd *pd, int n)
{
	((struct fake_pd *)pd)->mrs += (unsigned)n;
	fake_pd_use(pd, n);
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			     unsigned access)
{
	struct fake_mr *mr;
	int error;

	begin_call();
	if (++fake_verbs.tried % (fake_verbs.gone_each ?: UINT_MAX) == 0)
		return refuse(EIO);
	if (fails())
		return refuse(fake_verbs.fail_errno);
	if (length > fake_verbs.max_mr_size || !are_sound(access))
		return refuse(EINVAL);
	n_elsewhere += is_elsewhere(pd);
	if (!take_one(&fake_verbs.live)) {
		n_elsewhere -= is_elsewhere(pd);
		return NULL;
	}
	if (!within_limit(length)) {
		n_elsewhere -= is_elsewhere(pd);
		fake_verbs.live--;
		return refuse(ENOMEM);
	}
	mr = calloc(1, sizeof *mr);
	mr->mr = (struct ibv_mr){
		.context = pd->context, .pd = pd, .addr = addr, .length = length};
	do
		mr->mr.lkey = ++fake_verbs.made;
	while (key_of(mr->mr.lkey)->lkey);
	mr->mr.rkey = mr->mr.lkey | REMOTE;
	mr->mr.handle = mr->mr.lkey;
	mr->access = (int)access;
	mr->length = length;
	error = fake_adapter_pin ? fake_adapter_pin(mr->mr.lkey, addr, length, access) : 0;
	if (error) {
		n_elsewhere -= is_elsewhere(pd);
		fake_verbs.live--;
		fake_verbs.registered -= length;
		free(mr);
		return refuse(error);
	}
	make_key(&mr->mr, access);
	count_mr(pd, 1);
	return &mr->mr;
}

unsigned fake_access_of(uint32_t lkey)
{
	return key_of(lkey)->access;
}

static bool reaches(const struct fake_key *key, const struct ibv_pd *pd, const void *addr,
		    size_t length)
{
	uintptr_t start = (uintptr_t)addr;

	return key->handle == pd->handle && key->start <= start && start + length <= key->end;
}

bool fake_keys_reach(uint32_t lkey, uint32_t rkey, const struct ibv_pd *pd, const void *addr,
		     size_t length)
{
	const struct fake_key *key = key_of(lkey);

	return key->lkey == lkey && rkey == (lkey | REMOTE) && reaches(key, pd, addr, length);
}

uint32_t fake_lkey_of(uint32_t rkey)
{
	return rkey & ~REMOTE;
}

bool fake_key_permits(uint32_t name, unsigned access, const struct ibv_pd *pd, const void *addr,
		      size_t length)
{
	const struct fake_key *key = key_of(name & ~REMOTE);

	return key->lkey == (name & ~REMOTE) && key->lkey &&
	       !(name & REMOTE) == !(access & ~(unsigned)IBV_ACCESS_LOCAL_WRITE) &&
	       !(access & ~key->access) && reaches(key, pd, addr, length);
}

static void end_key(const struct fake_mr *mr)
{
	key_of(mr->mr.lkey)->lkey = 0;
	if (fake_adapter_unpin)
		fake_adapter_unpin(mr->mr.lkey);
	fake_verbs.registered -= mr->length;
	n_elsewhere -= is_elsewhere(mr->mr.pd);
	fake_verbs.live--;
}

/* A second deregistration is a double free, which every sanitizer reports. */
static int dereg_mr(struct ibv_mr *ibv_mr)
{
	struct fake_mr *mr = (struct fake_mr *)ibv_mr;

	begin_call();
	end_key(mr);
	count_mr(mr->mr.pd, -1);
	free(mr);
	return 0;
}

/* All or nothing. */
static bool resize(struct fake_mr *mr, size_t length)
{
	atomic_fetch_sub(&fake_verbs.registered, mr->length);
	if (within_limit(length)) {
		mr->length = length;
		return true;
	}
	atomic_fetch_add(&fake_verbs.registered, mr->length);
	errno = ENOMEM;
	return false;
}

static int rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		    int access)
{
	unsigned rights = key_of(mr->lkey)->access;

	if (fake_verbs.rereg_errno ||
	    ((flags & IBV_REREG_MR_CHANGE_ACCESS) && !are_sound((unsigned)access))) {
		errno = fake_verbs.rereg_errno ? fake_verbs.rereg_errno : EINVAL;
		return IBV_REREG_MR_ERR_CMD;
	}
	if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && !resize((struct fake_mr *)mr, length))
		return IBV_REREG_MR_ERR_CMD;
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		count_mr(mr->pd, -1);
		count_mr(pd, 1);
		mr->pd = pd;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		rights = (unsigned)access;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->addr = addr;
		mr->length = length;
		if (fake_adapter_pin) {
			fake_adapter_unpin(mr->lkey);
			if (fake_adapter_pin(mr->lkey, addr, length, rights))
				return IBV_REREG_MR_ERR_CMD;
		}
	}
	make_key(mr, rights);
	return 0;
}

static struct ibv_pd *new_pd(struct ibv_context *context, uint32_t handle)
{
	struct fake_pd *pd = calloc(1, sizeof *pd);

	pd->pd.context = context;
	pd->pd.handle = handle;
	return &pd->pd;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
	static _Atomic uint32_t next = FIRST_HANDLE;
	uint32_t handle, none;

	do {
		none = 0;
		handle = next++;
	} while (!atomic_compare_exchange_strong(&kernel_pd(handle)->handle, &none, handle));
	kernel_pd(handle)->users = 0;
	kernel_pd(handle)->context = context;
	return new_pd(context, handle);
}

struct ibv_pd *fake_import_pd(struct ibv_context *context, uint32_t handle)
{
	return kernel_pd(handle)->handle == handle ? new_pd(context, handle) : NULL;
}

/* The kernel's PD lives on; only the struct goes, unless MRs point to it. */
void fake_unimport_pd(struct ibv_pd *pd)
{
	if (!((struct fake_pd *)pd)->mrs)
		free(pd);
}

struct ibv_mr *fake_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct ibv_mr *mr = calloc(1, sizeof *mr);

	*mr = *key_of(handle)->mr;
	mr->pd = pd;
	return mr;
}

static int dealloc_pd(struct ibv_pd *pd)
{
	begin_call();
	if (kernel_pd(pd->handle)->users)
		return EBUSY;
	kernel_pd(pd->handle)->handle = 0;
	free(pd);
	return 0;
}

static int close_device(struct ibv_context *context)
{
	return 0;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	begin_call();
	memset(attr, 0, sizeof *attr);
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
	begin_call();
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

struct ibv_context *fake_context(void)
{
	static struct ibv_context context = {.device = &device};

	return &context;
}

struct ibv_context *fake_context_elsewhere(void)
{
	static struct ibv_device other = {.name = "fake1"};
	static struct ibv_context context = {.device = &other};

	return &context;
}

struct ibv_context *fake_context_new(void)
{
	struct ibv_context *context = calloc(1, sizeof *context);

	context->device = &device;
	context->ops = fake_verbs.ops;
	return context;
}

static unsigned last_key(void)
{
	return fake_verbs.made < MOST_KEYS ? fake_verbs.made : MOST_KEYS - 1;
}

void fake_for_each_mr(const struct ibv_pd *pd, int (*call)(struct ibv_mr *mr))
{
	for (unsigned i = 0; i <= last_key(); i++)
		if (keys[i].lkey && keys[i].pd == pd)
			call(keys[i].mr);
}

void fake_context_end(struct ibv_context *context)
{
	for (unsigned i = 0; i <= last_key(); i++)
		if (keys[i].lkey && keys[i].mr->context == context)
			end_key((const struct fake_mr *)keys[i].mr);
	for (unsigned i = 0; i < MOST_PDS; i++)
		if (kernel_pds[i].context == context)
			kernel_pds[i].handle = 0;
	free(context);
}
