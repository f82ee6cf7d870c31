/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The adapters: whether there are any, and whether they can be opened and register memory as
 * the library does. libibverbs is loaded, not linked, so that the rest of the command works
 * without it. (The state of their ports is what ibv_devinfo(1) shows.)
 */
#include <config.h>

#include "allocator/log.h"
#include "allocator/os.h"
#include "preload/command/command.h"
#include "regpool/arm.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define LIBIBVERBS "libibverbs.so.1"

static const struct pin_ibverbs *verbs;

/* libibverbs also tries other names for the file, so its errno may be about one of those. */
static void say_unopened(const struct ibv_device *device, int error)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "/dev/infiniband/%s", device->dev_name);
	if (access(path, R_OK | W_OK))
		error = errno;
	cmd_finding(CMD_FAIL, "device",
		    error == EACCES || error == EPERM
			    ? "give its users read and write access, by a udev rule"
			    : "look at what the kernel says (dmesg)",
		    "%s cannot be opened: %s: %s", device->name, path, strerrordesc_np(error));
}

/* Registers as little as the library ever does. Returns 0 or an errno value. */
static int try_memory(struct ibv_pd *pd, uint64_t *ns)
{
	void *memory = aligned_alloc(PIN_GRANULE, PIN_GRANULE);
	struct ibv_mr *mr;
	int error = 0;

	if (!memory)
		return ENOMEM;
	memset(memory, 0, PIN_GRANULE);
	*ns = pin_os_now_ns();
	mr = verbs->reg_mr_iova2(pd, memory, PIN_GRANULE, (uintptr_t)memory,
				 pin_domain_rights());
	if (!mr)
		error = errno;
	*ns = pin_os_now_ns() - *ns;
	if (mr)
		verbs->dereg_mr(mr);
	free(memory);
	return error;
}

static const char *cure_of_registration(int error)
{
	if (!pin_ibverbs_out_of_room(error))
		return "the adapter may lack atomics or remote access: try "
		       "PINALLOC_ACCESS=local";
	return cmd_memlock_is_limited() ? "raise ulimit -l (see memlock)"
					: "free memory; look at rdma resource show mr";
}

static void check_registration(struct ibv_context *context)
{
	struct ibv_pd *pd = verbs->alloc_pd(context);
	uint64_t ns = 0;
	int error = pd ? try_memory(pd, &ns) : errno;

	if (pd)
		verbs->dealloc_pd(pd);
	if (error)
		cmd_finding(CMD_FAIL, "registration", cure_of_registration(error),
			    "%s does not register 2 MiB: %s", context->device->name,
			    strerrordesc_np(error));
	else
		cmd_finding(CMD_OK, "registration", NULL, "%s registered 2 MiB in %lu us",
			    context->device->name, ns / 1000);
}

static void check_device(struct ibv_device *device)
{
	struct ibv_context *context = verbs->open_device(device);

	if (!context) {
		say_unopened(device, errno);
		return;
	}
	check_registration(context);
	verbs->close_device(context);
}

/* libibverbs does not list a device whose file is missing. */
static void say_no_device(bool kernel_has_some)
{
	if (!kernel_has_some)
		cmd_finding(CMD_FAIL, "device",
			    "load its driver; or for a trial use soft-RoCE: modprobe rdma_rxe "
			    "&& rdma link add rxe0 type rxe netdev eth0",
			    "there is no RDMA device here");
	else if (access("/dev/infiniband", F_OK))
		cmd_finding(CMD_FAIL, "device",
			    "modprobe ib_uverbs, or pass /dev/infiniband into the container",
			    "the kernel has an RDMA device, but there is no /dev/infiniband");
	else
		cmd_finding(CMD_FAIL, "device",
			    "install its provider (Debian: ibverbs-providers)",
			    "the kernel has an RDMA device, but libibverbs cannot use it");
}

/* libibverbs asks the kernel's RDMA layer, which may not be loaded if there is no device. */
static void check_fork(bool kernel_has_some)
{
	int major = 0, minor = 0;
	struct utsname name;
	bool copies;

	uname(&name);
	sscanf(name.release, "%d.%d", &major, &minor);
	copies = verbs->is_fork_initialized &&
		 (verbs->is_fork_initialized() == IBV_FORK_UNNEEDED ||
		  (!kernel_has_some && (major > 5 || (major == 5 && minor >= 12))));
	cmd_finding(copies ? CMD_OK : CMD_WARN, "fork",
		    copies ? NULL
			   : "a kernel from 5.12 on and rdma-core from 35 on; or, if nothing "
			     "forks, UCX_IB_FORK_INIT=n, "
			     "OMPI_MCA_opal_common_verbs_want_fork_support=0, and "
			     "RDMAV_FORK_SAFE and IBV_FORK_SAFE unset",
		    copies ? "the kernel copies pinned pages for a child"
			   : "pinned pages are not copied for a child: in programs that call "
			     "ibv_fork_init() nothing is registered ahead");
}

void cmd_check_adapters(void)
{
	glob_t found;
	bool kernel_has_some = !glob("/sys/class/infiniband/*", 0, NULL, &found);
	struct ibv_device **devices;
	int n = 0;

	globfree(&found);
	if (!dlopen(LIBIBVERBS, RTLD_NOW)) {
		cmd_finding(CMD_FAIL, "device",
			    "install rdma-core's libibverbs (Debian: libibverbs1)", "%s",
			    dlerror());
		return;
	}
	verbs = pin_ibverbs();
	devices = verbs->get_device_list(&n);
	if (!n)
		say_no_device(kernel_has_some);
	for (int i = 0; i < n; i++)
		check_device(devices[i]);
	check_fork(kernel_has_some);
}
