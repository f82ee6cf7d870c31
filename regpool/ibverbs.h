/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The real libibverbs. pinalloc does not link to it, because it is also preloaded into programs
 * that never load it. Its functions are looked up in the copies the program has loaded.
 */
#ifndef PIN_IBVERBS_H
#define PIN_IBVERBS_H

#include "allocator/base.h"

#include <errno.h>
#include <infiniband/verbs.h>

/* Of rdma-core 35 and 34. */
#if !HAVE_DECL_IBV_IS_FORK_INITIALIZED
enum ibv_fork_status { IBV_FORK_DISABLED, IBV_FORK_ENABLED, IBV_FORK_UNNEEDED };
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
struct ibv_buf;
struct ibv_mr *ibv_reg_buf_mr(struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length,
			      int access);
struct ibv_comp_cntr;
struct ibv_comp_cntr_init_attr;
struct ibv_comp_cntr *ibv_create_comp_cntr(struct ibv_context *context,
					   struct ibv_comp_cntr_init_attr *attr);

struct pin_ibverbs {
	struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *pd, void *addr, size_t length,
				       uint64_t iova, unsigned access);
	int (*dereg_mr)(struct ibv_mr *mr);
	int (*rereg_mr)(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
			size_t length, int access);
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t length,
					uint64_t iova, int fd, int access);
	struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
	struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *pd, struct ibv_buf *buf, void *addr,
				     size_t length, int access);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_context *(*open_device)(struct ibv_device *device);
	int (*close_device)(struct ibv_context *context);
	int (*query_device)(struct ibv_context *context, struct ibv_device_attr *attr);
	struct ibv_cq *(*create_cq)(struct ibv_context *context, int cqe, void *cq_context,
				    struct ibv_comp_channel *channel, int comp_vector);
	int (*resize_cq)(struct ibv_cq *cq, int cqe);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	struct ibv_srq *(*create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
	struct ibv_ah *(*create_ah)(struct ibv_pd *pd, struct ibv_ah_attr *attr);
	struct ibv_comp_cntr *(*create_comp_cntr)(struct ibv_context *context,
						  struct ibv_comp_cntr_init_attr *attr);
	struct ibv_device **(*get_device_list)(int *n);
	void (*free_device_list)(struct ibv_device **list);
	int (*fork_init)(void);
	int (*dontfork_range)(void *start, size_t length);
	int (*dofork_range)(void *start, size_t length);
	enum ibv_fork_status (*is_fork_initialized)(void);
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

#endif
