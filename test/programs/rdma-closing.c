// SPDX-License-Identifier: BSD-2-Clause
/*
 * Contexts that end, with all that is in them, while the library registers their heap: by an
 * ibv_close_device that dlsym has found, so that the library is not asked first.
 *
 *   usage: rdma-closing DEVICE ROUNDS
 */
#include <dlfcn.h>

#include "oracle.h"

#define PAGE 4096

static int (*close_device)(struct ibv_context *);

/* Registers so often that the domain is in use, and closes in the middle of what follows. */
static int open_and_close(struct ibv_device *of, uint64_t *random)
{
	struct ibv_context *context = ibv_open_device(of);
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	char *p = malloc(16 * MIB);
	struct ibv_mr *mr;
	int n_right = 0;

	need(pd && p);
	memset(p, 1, 16 * MIB);
	for (int i = 0; i < 6; i++) {
		char *at = p + i * 2 * MIB;

		need((mr = ibv_reg_mr(pd, at, PAGE, RDMA_ACCESS)));
		n_right += !ask(mr, at, PAGE, RDMA_ACCESS);
	}
	usleep(rdma_random(random) % 20000);
	n_right += !close_device(context);
	free(p);
	return n_right == 7;
}

int main(int argc, char **argv)
{
	struct ibv_device **list, *of;
	int n_rounds, n_right = 0;
	uint64_t random = 1;

	need(argc == 3);
	n_rounds = atoi(argv[2]);
	need((close_device = dlsym(dlopen("libibverbs.so.1", RTLD_NOW), "ibv_close_device")));
	need((list = ibv_get_device_list(NULL)) && (of = find_device(list, argv[1])));
	for (int i = 0; i < n_rounds; i++)
		n_right += open_and_close(of, &random);
	ibv_free_device_list(list);
	printf("closed %d right %d\n", n_rounds, n_right);
	return n_right != n_rounds;
}
