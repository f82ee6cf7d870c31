/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The adapters: whether there are any, and whether they can be opened and register memory as
 * the library does. libibverbs is loaded, not linked, so that the rest of the command works
 * without it. (The state of their ports is what ibv_devinfo(1) shows.)
 */
#include <config.h>

#include "allocator/os.h"
#include "preload/command/command.h"
#include "regpool/domain.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#define LIBIBVERBS "libibverbs.so.1"

static const struct pin_ibverbs *verbs;

/* Registers as little as the library ever does. Returns 0 or an errno value. */
static int try_memory(struct ibv_context *context, uint64_t *ns)
{
	struct ibv_pd *pd = verbs->alloc_pd(context);
	void *memory = pd ? aligned_alloc(PIN_GRANULE, PIN_GRANULE) : NULL;
	struct ibv_mr *mr;
	int error;

	if (!memory)
		return errno;
	memset(memory, 0, PIN_GRANULE);
	*ns = pin_os_now_ns();
	mr = verbs->reg_mr_iova2(pd, memory, PIN_GRANULE, (uintptr_t)memory,
				 pin_options.access);
	error = mr ? 0 : errno;
	*ns = pin_os_now_ns() - *ns;
	if (mr)
		verbs->dereg_mr(mr);
	verbs->dealloc_pd(pd);
	free(memory);
	return error;
}

/* The errno of libibverbs may be about another name of the file, which it tried last. */
static void check_device(struct ibv_device *device)
{
	struct ibv_context *context = verbs->open_device(device);
	uint64_t ns = 0;
	int error = context ? try_memory(context, &ns) : 0;

	if (!context)
		cmd_finding(CMD_FAIL, "device",
			    "give its users read and write access to /dev/infiniband, by a "
			    "udev rule, or look at what the kernel says (dmesg)",
			    "%s cannot be opened", device->name);
	else if (error)
		cmd_finding(CMD_FAIL, "registration",
			    pin_ibverbs_out_of_room(error)
				    ? "raise ulimit -l (see memlock), or free memory"
				    : "if the adapter lacks atomics or remote access, "
				      "PINALLOC_ACCESS=local",
			    "%s does not register 2 MiB: %s", device->name,
			    strerrordesc_np(error));
	else
		cmd_finding(CMD_OK, "registration", NULL, "%s registered 2 MiB in %lu us",
			    device->name, ns / 1000);
	if (context)
		verbs->close_device(context);
}

static void check_fork(void)
{
	if (verbs->is_fork_initialized && verbs->is_fork_initialized() == IBV_FORK_UNNEEDED)
		cmd_finding(CMD_OK, "fork", NULL, "the kernel copies pinned pages for a child");
	else
		cmd_finding(CMD_WARN, "fork",
			    "a kernel from 5.12 on and rdma-core from 35 on; or, if nothing "
			    "forks, UCX_IB_FORK_INIT=n, "
			    "OMPI_MCA_opal_common_verbs_want_fork_support=0, and "
			    "RDMAV_FORK_SAFE and IBV_FORK_SAFE unset",
			    "pinned pages are not copied for a child: in programs that call "
			    "ibv_fork_init() nothing is registered ahead");
}

/* libibverbs does not list a device whose file is missing. */
static void say_no_device(void)
{
	glob_t found;
	bool is_there = !glob("/sys/class/infiniband/*", 0, NULL, &found);

	globfree(&found);
	if (!is_there)
		cmd_finding(CMD_FAIL, "device",
			    "load its driver; or for a trial use soft-RoCE: modprobe rdma_rxe "
			    "&& rdma link add rxe0 type rxe netdev eth0",
			    "there is no RDMA device here");
	else
		cmd_finding(CMD_FAIL, "device",
			    "load its driver and ib_uverbs; pass /dev/infiniband into the "
			    "container; install its provider (Debian: ibverbs-providers)",
			    "the kernel has an RDMA device, but libibverbs cannot use it");
}

void cmd_check_adapters(void)
{
	struct ibv_device **devices;
	int n = 0;

	if (!dlopen(LIBIBVERBS, RTLD_NOW)) {
		cmd_finding(CMD_FAIL, "device",
			    "install rdma-core's libibverbs (Debian: libibverbs1)", "%s",
			    dlerror());
		return;
	}
	verbs = pin_ibverbs();
	devices = verbs->get_device_list(&n);
	for (int i = 0; i < n; i++)
		check_device(devices[i]);
	/* Without a device libibverbs does not know what the kernel does at a fork. */
	if (n)
		check_fork();
	else
		say_no_device();
}
