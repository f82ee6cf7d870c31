/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The real libibverbs. pinalloc does not link to it, because it is also preloaded into programs
 * that never load it. Its functions are looked up in the copies the program has loaded.
 */
#pragma once

#include "allocator/base.h"

#include <errno.h>
#include <infiniband/verbs.h>

/* Of rdma-core 35 and 34. */
#if !HAVE_DECL_IBV_IS_FORK_INITIALIZED
enum ibv_fork_status { IBV_FORK_DISABLED, IBV_FORK_ENABLED, IBV_FORK_UNNEEDED };
enum ibv_fork_status ibv_is_fork_initialized(void);
#endif
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
				 uint64_t iova, int fd, int access);
/* Of rdma-core 61 and later. Its fields are looked at as far as comp_mask says they are set. */
#if !HAVE_DECL_IBV_REG_MR_EX
enum {
	IBV_REG_MR_MASK_IOVA = 1 << 0,
	IBV_REG_MR_MASK_ADDR = 1 << 1,
};
struct ibv_mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
};
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
#endif
/* Of no public header. */
int ibv_dontfork_range(void *start, size_t length);
int ibv_dofork_range(void *start, size_t length);
struct ibv_buf;
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length,
			      int access);

/*
 * The functions of libibverbs that are called, with their versions, which are those of
 * libibverbs.map.in; without a version there could be the functions of ABI 1.0, which use other
 * structures. A copy that is linked into another library has none.
 */
#define PIN_IBVERBS_FUNCTIONS(X)       \
	X(reg_mr_iova2, "1.8")         \
	X(dereg_mr, "1.1")             \
	X(rereg_mr, "1.1")             \
	X(alloc_pd, "1.1")             \
	X(dealloc_pd, "1.1")           \
	X(open_device, "1.1")          \
	X(close_device, "1.1")         \
	X(query_device, "1.1")         \
	X(create_cq, "1.1")            \
	X(resize_cq, "1.1")            \
	X(create_qp, "1.1")            \
	X(create_srq, "1.1")           \
	X(create_ah, "1.1")            \
	X(get_device_list, "1.1")      \
	X(free_device_list, "1.1")     \
	X(fork_init, "1.1")            \
	X(dontfork_range, "1.1")       \
	X(dofork_range, "1.1")         \
	X(reg_dmabuf_mr, "1.12")       \
	X(is_fork_initialized, "1.13") \
	X(reg_mr_ex, "1.15")           \
	X(reg_buf_mr, "1.17")

struct pin_ibverbs {
#define FUNCTION(name, version) __typeof__(&ibv_##name) name;
	PIN_IBVERBS_FUNCTIONS(FUNCTION)
#undef FUNCTION
	/* verbs_uninit_context(), an internal function: its version differs in each release. */
	void (*uninit_context)(struct verbs_context *context);
};

/*
 * The table of functions. Those that later releases of rdma-core added (import, dma-buf, fork
 * status, extended registration, counters) may be NULL: a program cannot call a function that
 * its libibverbs does not have. If no libibverbs is loaded this is a fatal error, because only
 * a caller of libibverbs can get here. Thread-safe. The first call allocates, so it must not be
 * made from inside malloc.
 */
const struct pin_ibverbs *pin_ibverbs(void);

/*
 * Looks for copies that were loaded since the last call. Thread-safe. Must not be called from
 * inside malloc.
 */
void pin_ibverbs_find(void);

/*
 * A process may have several copies of libibverbs, which must not get each other's objects: the
 * symbol versions of all are the same, so all calls come here. These are the functions of the
 * copy that has opened a context, and of the one that has found a device.
 */
const struct pin_ibverbs *pin_ibverbs_of(const struct ibv_context *context);
const struct pin_ibverbs *pin_ibverbs_of_device(const struct ibv_device *device);

/*
 * Whether a registration that failed with this errno may succeed after others are deregistered:
 * ENOMEM for locked memory, kernel memory or the adapter's limits; EAGAIN and ENOSPC for tables
 * of some adapters (mlx5 without firmware resources, the kernel's id allocators); EOVERFLOW for
 * those of irdma.
 */
static inline bool pin_ibverbs_out_of_room(int error)
{
	return error == ENOMEM || error == EAGAIN || error == ENOSPC || error == EOVERFLOW;
}

/* What a function returns that this libibverbs does not have. */
static inline void *pin_ibverbs_lacks(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

/* Replaces the table; with PIN_DEBUG, for unit tests. */
void pin_ibverbs_replace(const struct pin_ibverbs *table);

/*
 * The context that this structure ends with. Each release of libibverbs may put more functions
 * at the structure's beginning, so where the context is does not follow from the headers, but
 * from the size of it all, which is the word before the context.
 */
static inline struct ibv_context *pin_ibverbs_context_in(struct verbs_context *extended)
{
	size_t *size = (size_t *)extended;

	while (*size !=
	       (size_t)((char *)(size + 1) - (char *)extended) + sizeof(struct ibv_context))
		size++;
	return (struct ibv_context *)(size + 1);
}
