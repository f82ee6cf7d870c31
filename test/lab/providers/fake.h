/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * fake_rdma.ko is the kernel's side of RDMA adapters that do not exist, so that rdma-core's own
 * providers (libmlx5, libefa, libirdma, ...) run in the lab. The kernel's ib_uverbs does the
 * ABI, and ib_umem_get() pins. Nothing is sent: what is posted stays posted, and doorbells are
 * zeroed memory.
 *
 *   insmod fake_rdma.ko kinds=mlx5,efa     names of kinds.c, or all
 * For root, in /sys/module/fake_rdma/parameters:
 *   ask        what would the adapter do with this key? (regions.c)
 *   unplug     DEVICE is reset or taken out; plug: it comes back
 */
#ifndef FAKE_H
#define FAKE_H

#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

/* The calls to whose answers drivers add something of their own. */
enum call {
	CONTEXT,
	PD,
	CQ,
	QP,
	SRQ,
	REGION,
	DEVICE,
	MODIFY,
	N_CALLS,
};

/* What a driver adds: these bytes, or zeroes, and if it is numbered, at number_at a new number.
 */
struct answer {
	const void *bytes;
	size_t size;
	bool is_numbered;
	size_t number_at;
};

/* A driver, and the adapter that it drives. */
struct kind {
	const char *name;
	enum rdma_driver_id driver;
	u32 abi;
	u16 vendor, device; /* PCI ids */
	bool is_infiniband;
	const struct uapi_definition *methods; /* of the driver alone */
	struct answer answers[N_CALLS];
};

struct adapter {
	struct ib_device ib;
	const struct kind *kind;
	atomic_t number; /* of whatever was made last */
	struct mutex lock;
	struct xarray regions; /* by key >> 8; under the lock, so that none ends while it is
				  looked at */
};

static inline struct adapter *adapter_of(struct ib_device *ib)
{
	return container_of(ib, struct adapter, ib);
}

static inline u32 adapter_number(struct adapter *adapter)
{
	return atomic_inc_return(&adapter->number);
}

/* The largest answer. */
#define ANSWER_SIZE 512

/* device.c */
size_t adapter_fill(struct adapter *adapter, enum call call, void *out);
int adapter_answer(struct ib_device *ib, enum call call, struct ib_udata *udata);

/* kinds.c */
extern const struct kind fake_kinds[];
extern const size_t fake_n_kinds;

/* mlx5.c */
extern const struct uapi_definition fake_mlx5_methods[];

/* objects.c and regions.c */
extern const struct ib_device_ops fake_object_ops, fake_region_ops;
int fake_ask(struct adapter *adapter, const char *question);

#endif
