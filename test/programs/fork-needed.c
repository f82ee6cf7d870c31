/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Preloaded after the library: makes libibverbs believe that the kernel is older than 5.12 and
 * does not copy pinned pages at fork(). The kernel says whether it does in an attribute of a
 * netlink message, which libibverbs reads with a function of libnl. For that attribute the
 * function of this file returns 0; everything else is real.
 */
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <stdint.h>

uint8_t nla_get_u8(const struct nlattr *attr);

uint8_t nla_get_u8(const struct nlattr *attr)
{
	if ((attr->nla_type & NLA_TYPE_MASK) == RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK)
		return 0;
	return *((const uint8_t *)attr + NLA_HDRLEN);
}
