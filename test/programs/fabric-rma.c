/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * usage: fabric-rma ADDRESS
 * Two endpoints of libfabric's verbs provider in one process: in each round one writes from,
 * and reads into, memory that is allocated and registered anew, to and from that of the other.
 * Prints "wrong N", of bytes that differ.
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 20
#define LENGTH ((size_t)1 << 20)
#define RIGHTS (FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE)

struct end {
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	fi_addr_t other;
};

static struct fi_info *info;
static struct fid_domain *domain;

static void check(const char *what, long status)
{
	if (status >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-status));
	exit(3);
}

static void open_domain(const char *address)
{
	struct fi_info *hints = fi_allocinfo();
	struct fid_fabric *fabric;

	hints->fabric_attr->prov_name = strdup("verbs;ofi_rxm");
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_RMA;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY;
	check("fi_getinfo",
	      fi_getinfo(FI_VERSION(1, 11), address, NULL, FI_SOURCE, hints, &info));
	check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
	check("fi_domain", fi_domain(fabric, info, &domain, NULL));
	fi_freeinfo(hints);
}

static void open_end(struct end *end)
{
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE};
	struct fi_av_attr av = {.type = FI_AV_TABLE, .count = 2};

	check("fi_cq_open", fi_cq_open(domain, &cq, &end->cq, NULL));
	check("fi_av_open", fi_av_open(domain, &av, &end->av, NULL));
	check("fi_endpoint", fi_endpoint(domain, info, &end->ep, NULL));
	check("fi_ep_bind", fi_ep_bind(end->ep, &end->cq->fid, FI_TRANSMIT | FI_RECV));
	check("fi_ep_bind", fi_ep_bind(end->ep, &end->av->fid, 0));
	check("fi_enable", fi_enable(end->ep));
}

static void introduce(struct end *from, struct end *to)
{
	char name[64];
	size_t length = sizeof name;

	check("fi_getname", fi_getname(&to->ep->fid, name, &length));
	check("fi_av_insert", fi_av_insert(from->av, name, 1, &from->other, 0, NULL) - 1);
}

static struct fid_mr *registered(char **memory, int byte)
{
	struct fid_mr *mr;

	*memory = malloc(LENGTH);
	if (!*memory)
		exit(3);
	memset(*memory, byte, LENGTH);
	check("fi_mr_reg", fi_mr_reg(domain, *memory, LENGTH, RIGHTS, 0, 0, 0, &mr, NULL));
	return mr;
}

/* Calls made until then progress the other end as well. */
static void complete(struct end *end, struct end *other)
{
	struct fi_cq_entry entry;
	ssize_t n;

	do {
		fi_cq_read(other->cq, NULL, 0);
		n = fi_cq_read(end->cq, &entry, 1);
	} while (n == -FI_EAGAIN);
	check("fi_cq_read", n);
}

/* Either function of RMA, for the whole of the memory. */
#define TRANSFER(function, end, peer, memory, mr, target, key)                               \
	do {                                                                                 \
		ssize_t status_;                                                             \
                                                                                             \
		while ((status_ = function((end)->ep, memory, LENGTH, fi_mr_desc(mr),        \
					   (end)->other, (uintptr_t)(target), key, NULL)) == \
		       -FI_EAGAIN) {                                                         \
			fi_cq_read((end)->cq, NULL, 0);                                      \
			fi_cq_read((peer)->cq, NULL, 0);                                     \
		}                                                                            \
		check(#function, status_);                                                   \
		complete(end, peer);                                                         \
	} while (0)

static size_t differing(const char *a, const char *b)
{
	size_t n = 0;

	for (size_t i = 0; i < LENGTH; i++)
		n += a[i] != b[i];
	return n;
}

static size_t round_trip(struct end *end, struct end *peer, int round)
{
	char *out, *target, *back;
	struct fid_mr *mrs[] = {registered(&out, round + 1), registered(&target, 0),
				registered(&back, 0)};
	uint64_t key = fi_mr_key(mrs[1]);
	size_t wrong;

	TRANSFER(fi_write, end, peer, out, mrs[0], target, key);
	TRANSFER(fi_read, end, peer, back, mrs[2], target, key);
	wrong = differing(out, back) + differing(out, target);
	for (int i = 0; i < 3; i++)
		fi_close(&mrs[i]->fid);
	free(out);
	free(target);
	free(back);
	return wrong;
}

int main(int argc, char **argv)
{
	struct end ends[2];
	size_t wrong = 0;

	if (argc != 2)
		return 2;
	open_domain(argv[1]);
	open_end(&ends[0]);
	open_end(&ends[1]);
	introduce(&ends[0], &ends[1]);
	introduce(&ends[1], &ends[0]);
	for (int round = 0; round < ROUNDS; round++)
		wrong += round_trip(&ends[0], &ends[1], round);
	printf("wrong %zu\n", wrong);
	return wrong != 0;
}
