/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A libibverbs.so.1 without a device, for programs that run with the built library on a machine
 * without an adapter: fake-verbs.c with the names and versions (fake-ibverbs.map) of the real
 * one. It has one device, or two with FAKE_TWO; a registration is an entry in a table, that of
 * a dma-buf, too, which is what is mapped at its device address. Under test/inject its calls
 * fail on demand. With FAKE_MOST_OBJECTS in the environment it has room for so many memory
 * regions and other objects, with FAKE_MOST_BYTES for so much memory; it does not say so. With
 * FAKE_GONE one registration of so many fails as if the device were gone. With fake-adapter.c
 * registrations touch memory, and there are queue pairs.
 */
#include <config.h>

#include "test/fake-verbs.h"
#include "test/inject.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>

/* Macros of <infiniband/verbs.h> that choose between the two at compile time. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

static const struct pin_ibverbs *verbs;
static bool may_fail;

/* In the unit tests it is the library's and changes its table; here it is the table. */
void pin_ibverbs_replace(const struct pin_ibverbs *table)
{
	verbs = table;
}

__attribute__((constructor)) static void install(void)
{
	fake_verbs_install();
	may_fail = getenv(INJECT_ENVIRONMENT);
	if (getenv("FAKE_MOST_OBJECTS"))
		fake_verbs.max_mr = (unsigned)atoi(getenv("FAKE_MOST_OBJECTS"));
	if (getenv("FAKE_MOST_BYTES"))
		fake_verbs.limit = (size_t)atol(getenv("FAKE_MOST_BYTES"));
	if (getenv("FAKE_GONE"))
		fake_verbs.gone_each = (unsigned)atoi(getenv("FAKE_GONE"));
	if (getenv("FAKE_PINS"))
		fake_pins_start();
}

/* With what is to be said, in errno. */
static bool fails(enum inject_request request)
{
	int saved = errno;

	if (!may_fail)
		return false;
	ioctl(-1, request);
	if (errno != EBADF)
		return true;
	errno = saved;
	return false;
}

PIN_EXPORT bool fake_verbs_reach(const struct ibv_mr *mr, const void *addr, size_t length)
{
	return fake_keys_reach(mr->lkey, mr->rkey, mr->pd, addr, length);
}

PIN_EXPORT struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(3, sizeof *list);
	bool has_two = getenv("FAKE_TWO");

	if (list)
		list[0] = fake_context()->device;
	if (list && has_two)
		list[1] = fake_context_elsewhere()->device;
	if (n)
		*n = list ? 1 + has_two : 0;
	return list;
}

PIN_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

PIN_EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

PIN_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context = fake_context_new();

	context->device = device;
	return context;
}

PIN_EXPORT int ibv_close_device(struct ibv_context *context)
{
	int error = verbs->close_device(context);

	if (!error)
		fake_context_end(context);
	return error;
}

PIN_EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	return fails(INJECT_QUERY_DEVICE) ? errno : verbs->query_device(context, attr);
}

PIN_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	return fails(INJECT_ALLOC_PD) ? NULL : verbs->alloc_pd(context);
}

PIN_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return fails(INJECT_DEALLOC_PD) ? errno : verbs->dealloc_pd(pd);
}

PIN_EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	return fake_import_pd(context, handle);
}

PIN_EXPORT void ibv_unimport_pd(struct ibv_pd *pd)
{
	fake_unimport_pd(pd);
}

PIN_EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	return fake_import_mr(pd, handle);
}

PIN_EXPORT void ibv_unimport_mr(struct ibv_mr *mr)
{
	free(mr);
}

PIN_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
					   uint64_t iova, unsigned access)
{
	if (fails(INJECT_REG_MR))
		return NULL;
	return verbs->reg_mr_iova2(pd, addr, length, iova, access);
}

/* Through the PLT, as in the real one. */
PIN_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
					  uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

PIN_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

PIN_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	return fails(INJECT_DEREG_MR) ? errno : verbs->dereg_mr(mr);
}

PIN_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			    size_t length, int access)
{
	return verbs->rereg_mr(mr, flags, pd, addr, length, access);
}

PIN_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					    uint64_t iova, int fd, int access)
{
	return verbs->reg_mr_iova2(pd, (void *)(uintptr_t)iova, length, iova, (unsigned)access);
}

/* As the provider's own function, which is not reached through the PLT. */
PIN_EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
	return verbs->reg_mr_iova2(pd, attr->addr, attr->length, attr->iova,
				   (unsigned)attr->access);
}

PIN_EXPORT struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr,
					 size_t length, int access)
{
	return verbs->reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

PIN_EXPORT int ibv_fork_init(void)
{
	return verbs->fork_init();
}

PIN_EXPORT enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return verbs->is_fork_initialized();
}

/* Not declared by <infiniband/verbs.h>. */
PIN_EXPORT int ibv_dontfork_range(void *start, size_t length)
{
	return 0;
}

PIN_EXPORT int ibv_dofork_range(void *start, size_t length)
{
	return ibv_dontfork_range(start, length);
}
