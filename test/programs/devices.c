/* SPDX-License-Identifier: BSD-2-Clause */
/* devices: prints how many RDMA devices libibverbs finds, when loaded the way UCX loads it. */
#include <config.h>

#include <dlfcn.h>
#include <stdio.h>

struct ibv_device;

int main(void)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_GLOBAL);
	struct ibv_device **(*list)(int *);
	int n = 0;

	list = (struct ibv_device * *(*)(int *)) dlsym(RTLD_DEFAULT, "ibv_get_device_list");
	if (!verbs || !list)
		return 1;
	list(&n);
	printf("%d\n", n);
	return 0;
}
