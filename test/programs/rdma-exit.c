/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations that are ended after main(): by atexit handlers, by a destructor of the program
 * and, with test/programs/rdma-plugin.c, by that of a library it is linked with or has opened.
 * Each prints how many failed. Ends with status 7.
 *
 *     rdma-exit [PLUGIN]      opens it; without, looks for one that is there
 */
#include <config.h> /* for RTLD_DEFAULT */

#include "test/programs/rdma.h"

#include <dlfcn.h>

#define LENGTH 100000

static struct rdma rdma;
static char *blocks[4];
static struct ibv_mr *mrs[4];

/* Deregisters two, after they have transferred data once more. */
static void give_up(const char *where, int first)
{
	struct ibv_mr **two = &mrs[first];
	int failed;

	failed = !rdma_sends(&rdma, two[0]->addr, two[0]->lkey, two[1]->addr, two[1]->rkey,
			     LENGTH);
	failed += ibv_dereg_mr(two[0]) != 0;
	failed += ibv_dereg_mr(two[1]) != 0;
	printf("%s: %d failed\n", where, failed);
	fflush(stdout);
}

static void handler(void)
{
	give_up("handler of atexit", 0);
}

__attribute__((destructor)) static void end(void)
{
	give_up("destructor of the program", 2);
	rdma_disconnect(&rdma);
	printf("domain: %d failed\n", ibv_dealloc_pd(rdma.pd));
	fflush(stdout);
}

static void start_plugin(const char *path)
{
	void *handle = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : RTLD_DEFAULT;
	void (*start)(void);

	need(handle || !path);
	*(void **)&start = dlsym(handle, "plugin_start");
	need(start);
	start();
}

int main(int argc, char **argv)
{
	rdma_connect(&rdma, ibv_alloc_pd(rdma_open()));
	for (int i = 0; i < 4; i++) {
		need((blocks[i] = malloc(LENGTH)));
		need((mrs[i] = ibv_reg_mr(rdma.pd, blocks[i], LENGTH, RDMA_ACCESS)));
	}
	need(!atexit(handler));
	start_plugin(argc > 1 ? argv[1] : NULL);
	return 7;
}
