/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The verbs a program calls. The real ibv_reg_mr() must never be called: inside libibverbs it
 * goes through the PLT to ibv_reg_mr_iova2(), and so back to us.
 */
#include <config.h>

#include "allocator/log.h"
#include "regpool/domain.h"
#include "regpool/fork.h"
#include "regpool/listeners.h"
#include "regpool/mr.h"
#include "regpool/provider.h"
#include "regpool/state.h"
#include "regpool/evict.h"

#include <errno.h>
#include <string.h>

/* Macros of <infiniband/verbs.h> that choose between the two at compile time. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* The library that calls. */
#define CALLER __builtin_return_address(0)

PIN_EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
					   uint64_t iova, unsigned access)
{
	return pin_mr_register(pd, addr, length, iova, access, CALLER);
}

PIN_EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
					  uint64_t iova, int access)
{
	return pin_mr_register(pd, addr, length, iova, (unsigned)access, CALLER);
}

PIN_EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return pin_mr_register(pd, addr, length, (uintptr_t)addr, (unsigned)access, CALLER);
}

PIN_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	return pin_mr_deregister(mr);
}

PIN_EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			    size_t length, int access)
{
	return pin_mr_reregister(mr, flags, pd, addr, length, access, CALLER, NULL);
}

PIN_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					    uint64_t iova, int fd, int access)
{
	__typeof__(&ibv_reg_dmabuf_mr) call = pin_ibverbs_of(pd->context)->reg_dmabuf_mr;

	pin_state_count(PIN_DMABUF);
	return call ? PIN_CREATE(pd->context, call(pd, offset, length, iova, fd, access))
		    : pin_ibverbs_lacks();
}

PIN_EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
	return pin_mr_register_extended(pd, attr, CALLER);
}

PIN_EXPORT struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr,
					 size_t length, int access)
{
	return pin_mr_register_buffer(pd, buf, addr, length, access, CALLER);
}

PIN_EXPORT int ibv_fork_init(void)
{
	return pin_fork_init();
}

/*
 * libibverbs calls these two for each registration. If they do nothing where the kernel copies
 * pinned pages, the heap survives in children even if the program finds the real
 * ibv_fork_init() with dlsym().
 */
PIN_EXPORT int ibv_dontfork_range(void *start, size_t length)
{
	return pin_fork_kernel_copies() ? 0 : pin_ibverbs()->dontfork_range(start, length);
}

PIN_EXPORT int ibv_dofork_range(void *start, size_t length)
{
	return pin_fork_kernel_copies() ? 0 : pin_ibverbs()->dofork_range(start, length);
}

PIN_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = PIN_CREATE(context, pin_ibverbs_of(context)->alloc_pd(context));

	if (pd && !pin_state_off()) {
		pin_provider_hook(context);
		pin_domain_notice(pd);
	}
	if (pd)
		pin_listeners_find();
	return pd;
}

PIN_EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	return pin_domain_dealloc(pd);
}

PIN_EXPORT int ibv_close_device(struct ibv_context *context)
{
	const struct pin_ibverbs *verbs = pin_ibverbs_of(context);

	pin_domain_close(context);
	return verbs->close_device(context);
}

/*
 * Providers call this last when a device is closed, even by an ibv_close_device() found with
 * dlsym. It has no version, like malloc, because libibverbs gives it another one in each
 * release.
 */
PIN_EXPORT_AS(void, verbs_uninit_context, struct verbs_context *extended)
{
	struct ibv_context *context = pin_ibverbs_context_in(extended);
	const struct pin_ibverbs *verbs = pin_ibverbs_of(context);

	pin_domain_close(context);
	verbs->uninit_context(extended);
}

PIN_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	const struct pin_ibverbs *verbs = pin_ibverbs_of_device(device);
	struct ibv_context *context = verbs->open_device(device);
	int error = errno;

	if (!context && !pin_state_off())
		pin_warn_once(
			"%s cannot be opened: %s; check the permissions of /dev/infiniband",
			device->name, strerrordesc_np(error));
	/* Early enough for libfabric, which chooses its monitor when a domain is opened. */
	if (context)
		pin_listeners_find();
	errno = error;
	return context;
}

PIN_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
					struct ibv_comp_channel *channel, int comp_vector)
{
	return PIN_CREATE(context, pin_ibverbs_of(context)->create_cq(context, cqe, cq_context,
								      channel, comp_vector));
}

PIN_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct pin_retry room = pin_retry_begin(cq->context, 0);
	int error;

	do {
		error = pin_ibverbs_of(cq->context)->resize_cq(cq, cqe);
	} while (error && pin_retry_evict(&room, error));
	return error;
}

#define CREATE_IN_DOMAIN(object, attributes)                                              \
	PIN_EXPORT struct ibv_##object *ibv_create_##object(struct ibv_pd *pd,            \
							    struct attributes *attr)      \
	{                                                                                 \
		struct attributes given = *attr;                                          \
                                                                                          \
		return PIN_CREATE(pd->context,                                            \
				  pin_ibverbs_of(pd->context)->create_##object(pd, attr), \
				  *attr = given);                                         \
	}
CREATE_IN_DOMAIN(qp, ibv_qp_init_attr)
CREATE_IN_DOMAIN(srq, ibv_srq_init_attr)
CREATE_IN_DOMAIN(ah, ibv_ah_attr)
