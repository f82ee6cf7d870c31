// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Memory regions, pinned as a driver pins them, and the oracle: what an adapter would do with a
 * key.
 */
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/version.h>
#include <rdma/ib_umem.h>

#include "fake.h"

struct region {
	struct ib_mr ib;
	struct ib_umem *umem; /* NULL if pages are pinned on demand */
	u64 start;	      /* its address in the process; ib.iova is the adapter's */
	int access;
};

static struct region *region_of(struct ib_mr *ib)
{
	return container_of(ib, struct region, ib);
}

static void give_key(struct region *region, struct adapter *adapter)
{
	if (region->ib.lkey)
		xa_erase(&adapter->regions, region->ib.lkey >> 8);
	region->ib.lkey = region->ib.rkey = adapter_number(adapter) << 8;
	xa_store(&adapter->regions, region->ib.lkey >> 8, region, GFP_KERNEL);
}

static struct ib_mr *make(struct ib_pd *pd, struct ib_umem *umem, u64 start, u64 length,
			  u64 iova, int access)
{
	struct region *region;

	if (IS_ERR(umem))
		return ERR_CAST(umem);
	region = kzalloc(sizeof *region, GFP_KERNEL);
	if (!region) {
		ib_umem_release(umem);
		return ERR_PTR(-ENOMEM);
	}
	region->umem = umem;
	region->start = start;
	region->access = access;
	region->ib.device = pd->device;
	region->ib.length = length;
	region->ib.iova = iova;
	give_key(region, adapter_of(pd->device));
	return &region->ib;
}

static int dereg_mr(struct ib_mr *ib, struct ib_udata *udata)
{
	struct adapter *adapter = adapter_of(ib->device);
	struct region *region = region_of(ib);

	mutex_lock(&adapter->lock);
	xa_erase(&adapter->regions, ib->lkey >> 8);
	mutex_unlock(&adapter->lock);
	ib_umem_release(region->umem);
	kfree(region);
	return 0;
}

static struct ib_mr *reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 iova, int access,
				 struct ib_udata *udata)
{
	struct ib_umem *umem = NULL;
	struct ib_mr *ib;
	int error;

	if (!(access & IB_ACCESS_ON_DEMAND))
		umem = ib_umem_get(pd->device, start, length, access);
	ib = make(pd, umem, start, length, iova, access);
	error = IS_ERR(ib) ? 0 : adapter_answer(pd->device, REGION, udata);
	if (!error)
		return ib;
	dereg_mr(ib, NULL);
	return ERR_PTR(error);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 12, 0)
typedef struct uverbs_attr_bundle dmabuf_data;
#else
typedef struct ib_udata dmabuf_data;
#endif

static struct ib_mr *reg_user_mr_dmabuf(struct ib_pd *pd, u64 offset, u64 length, u64 iova,
					int fd, int access, dmabuf_data *data)
{
	struct ib_umem_dmabuf *umem = ib_umem_dmabuf_get_pinned(pd->device, offset, length, fd,
								access);

	if (IS_ERR(umem))
		return ERR_CAST(umem);
	return make(pd, &umem->umem, offset, length, iova, access);
}

/* The key is a new one, as mlx5's may be, so that the oracle finds who uses the old one. */
static struct ib_mr *rereg_user_mr(struct ib_mr *ib, int flags, u64 start, u64 length, u64 iova,
				   int access, struct ib_pd *pd, struct ib_udata *udata)
{
	struct adapter *adapter = adapter_of(ib->device);
	struct region *region = region_of(ib);
	struct ib_umem *umem = NULL;

	if (flags & IB_MR_REREG_TRANS) {
		umem = ib_umem_get(ib->device, start, length, access);
		if (IS_ERR(umem))
			return ERR_CAST(umem);
	}
	mutex_lock(&adapter->lock);
	if (umem) {
		swap(region->umem, umem);
		region->start = start;
		ib->length = length;
		ib->iova = iova;
	}
	if (flags & IB_MR_REREG_ACCESS)
		region->access = access;
	give_key(region, adapter);
	mutex_unlock(&adapter->lock);
	ib_umem_release(umem);
	return NULL;
}

static int advise_mr(struct ib_pd *pd, enum ib_uverbs_advise_mr_advice advice, u32 flags,
		     struct ib_sge *list, u32 n, struct uverbs_attr_bundle *attrs)
{
	return 0;
}

const struct ib_device_ops fake_region_ops = {
	.advise_mr = advise_mr,
	.dereg_mr = dereg_mr,
	.reg_user_mr = reg_user_mr,
	.reg_user_mr_dmabuf = reg_user_mr_dmabuf,
	.rereg_user_mr = rereg_user_mr,
};

/* ---- the oracle ---- */

/* Whether the pages pinned for the range are those that the calling process has there. */
static int compare_pages(const struct region *region, u64 iova, u64 length)
{
	const struct sg_table *table = &region->umem->sgt_append.sgt;
	u64 start = region->start + (iova - region->ib.iova), at = start & PAGE_MASK;
	struct sg_page_iter pinned;

	for_each_sg_page(table->sgl, &pinned, table->orig_nents,
			 (at - (region->start & PAGE_MASK)) >> PAGE_SHIFT)
	{
		struct page *page;

		if (at >= start + length)
			break;
		if (get_user_pages_fast(at, 1, 0, &page) != 1)
			return -EFAULT;
		put_page(page);
		if (page != sg_page_iter_page(&pinned))
			return -ESTALE;
		at += PAGE_SIZE;
	}
	return 0;
}

static int look(const struct region *region, u32 pd, u64 iova, u64 length, u32 access)
{
	if (!region)
		return -ENOKEY;
	if (region->ib.pd->uobject->id != pd)
		return -EPERM;
	if (iova < region->ib.iova || iova + length > region->ib.iova + region->ib.length)
		return -ERANGE;
	if (access & ~region->access)
		return -EACCES;
	if (!region->umem || region->umem->is_odp || region->umem->is_dmabuf)
		return 0;
	return compare_pages(region, iova, length);
}

/*
 * PD KEY ADDRESS LENGTH ACCESS, all hexadecimal; PD is ibv_pd.handle. Refused are: ENOKEY no
 * such key, EPERM a key of another protection domain, ERANGE not all is within the memory
 * region, EACCES rights that it does not have, ESTALE its pages are not those of the calling
 * process.
 */
int fake_ask(struct adapter *adapter, const char *question)
{
	u64 iova, length;
	u32 pd, key, access;
	int error;

	if (sscanf(question, "%x %x %llx %llx %x", &pd, &key, &iova, &length, &access) != 5)
		return -EINVAL;
	mutex_lock(&adapter->lock);
	error = look(xa_load(&adapter->regions, key >> 8), pd, iova, length, access);
	mutex_unlock(&adapter->lock);
	return error;
}
