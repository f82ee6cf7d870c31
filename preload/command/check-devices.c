/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The adapters: whether there are any, and whether they can be opened, used, and register
 * memory as the library does. libibverbs is loaded, not linked, so that the rest of the command
 * works without it.
 */
#include <config.h>

#include "allocator/io.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "preload/command/command.h"
#include "regpool/arm.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define LIBIBVERBS "libibverbs.so.1"
#define DEVICES	   "/sys/class/infiniband/"

static const struct pin_ibverbs *verbs; /* NULL until it is loaded */
static struct ibv_device **devices;	/* ends with NULL; NULL itself when there is none */
static bool any_active;

/* Reads an attribute of a port from sysfs: "ACTIVE", where the file has "4: ACTIVE". */
static void read_attribute(const char *device, const char *port, const char *name, char *text,
			   size_t size)
{
	char path[PATH_MAX], *value;

	snprintf(path, sizeof path, DEVICES "%s/ports/%s/%s", device, port, name);
	if (pin_io_read(path, text, size) <= 0)
		strcpy(text, "?");
	text[strcspn(text, "\n")] = '\0';
	value = strstr(text, ": ");
	if (value)
		memmove(text, value + 2, strlen(value + 2) + 1);
}

/* One inactive port is only a warning, because many adapters have a port without a cable. */
static void check_port(const char *device, const char *port)
{
	char state[64], layer[64];
	bool active;

	read_attribute(device, port, "state", state, sizeof state);
	read_attribute(device, port, "link_layer", layer, sizeof layer);
	active = !strcmp(state, "ACTIVE");
	any_active |= active;
	cmd_finding(active ? CMD_OK : CMD_WARN, "port",
		    active			 ? NULL
		    : !strcmp(layer, "Ethernet") ? "ip link set its network device up, and "
						   "look at the cable"
						 : "look at the cable and the subnet manager",
		    "%s/%s is %s, %s", device, port, state, layer);
}

static void check_ports(const char *device)
{
	char pattern[PATH_MAX];
	glob_t ports;

	snprintf(pattern, sizeof pattern, DEVICES "%s/ports/*", device);
	glob(pattern, 0, NULL, &ports);
	for (size_t i = 0; i < ports.gl_pathc; i++)
		check_port(device, basename(ports.gl_pathv[i]));
	globfree(&ports);
}

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

static void check_sizes(struct ibv_context *context)
{
	struct ibv_device_attr attr;
	bool small, any;

	if (verbs->query_device(context, &attr)) {
		cmd_finding(CMD_FAIL, "device", "look at what the kernel says (dmesg)",
			    "%s cannot be queried", context->device->name);
		return;
	}
	small = attr.max_mr_size < pin_options.grow;
	any = attr.max_mr_size > 1024 * PIN_TIB;
	cmd_finding(small ? CMD_WARN : CMD_OK, "device",
		    small ? "set PINALLOC_GROW to that, or below" : NULL,
		    "%s takes %d memory regions of %s%s", context->device->name, attr.max_mr,
		    any ? "any size" : "up to ", any ? "" : PIN_SIZE(attr.max_mr_size));
}

static const char *cure_of_registration(int error)
{
	if (pin_ibverbs_out_of_room(error))
		return cmd_memlock_is_limited() ? "raise ulimit -l (see memlock)"
						: "free memory; look at rdma resource show mr";
	return "the adapter may lack atomics or remote access: try PINALLOC_ACCESS=local";
}

/* Registers as little as the library ever does. Returns 0 or an errno. */
static int try_memory(struct ibv_pd *pd, uint64_t *ns)
{
	void *memory = aligned_alloc(PIN_GRANULE, PIN_GRANULE);
	struct ibv_mr *mr = NULL;
	int error = ENOMEM;

	if (memory) {
		memset(memory, 0, PIN_GRANULE);
		*ns = pin_os_now_ns();
		errno = 0;
		mr = verbs->reg_mr_iova2(pd, memory, PIN_GRANULE, (uintptr_t)memory,
					 pin_domain_rights());
		error = mr ? 0 : errno;
		*ns = pin_os_now_ns() - *ns;
	}
	if (mr)
		verbs->dereg_mr(mr);
	free(memory);
	return error;
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
	int error = errno;

	check_ports(device->name);
	if (!context) {
		say_unopened(device, error);
		return;
	}
	check_sizes(context);
	check_registration(context);
	verbs->close_device(context);
}

/* Whether the kernel has a device, even if libibverbs has no provider for it. */
static bool kernel_has_device(void)
{
	glob_t found;
	bool has = !glob(DEVICES "*", 0, NULL, &found);

	globfree(&found);
	return has;
}

/* libibverbs does not list a device whose file is missing. */
static void say_no_device(void)
{
	if (!kernel_has_device())
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

void cmd_check_devices(void)
{
	int n = 0;

	if (!dlopen(LIBIBVERBS, RTLD_NOW)) {
		cmd_finding(CMD_FAIL, "device",
			    "install rdma-core's libibverbs (Debian: libibverbs1)", "%s",
			    dlerror());
		return;
	}
	verbs = pin_ibverbs();
	devices = verbs->get_device_list(&n);
	if (!n)
		say_no_device();
	for (int i = 0; i < n; i++)
		check_device(devices[i]);
	if (n && !any_active)
		cmd_finding(CMD_FAIL, "port", "see above", "none is active on this host");
}

static bool kernel_is(int major, int minor)
{
	struct utsname name;
	int its_major = 0, its_minor = 0;

	uname(&name);
	sscanf(name.release, "%d.%d", &its_major, &its_minor);
	return its_major > major || (its_major == major && its_minor >= minor);
}

/* libibverbs asks the kernel's RDMA layer, which may not be loaded if there is no device. */
static bool fork_copies(void)
{
	if (verbs && verbs->is_fork_initialized &&
	    verbs->is_fork_initialized() == IBV_FORK_UNNEEDED)
		return true;
	return (!verbs || (verbs->is_fork_initialized && !kernel_has_device())) &&
	       kernel_is(5, 12);
}

void cmd_check_fork(void)
{
	if (fork_copies())
		cmd_finding(CMD_OK, "fork", NULL,
			    "the kernel copies pinned pages for a child: fork() copies what "
			    "of the heap is in use, posix_spawn() copies nothing");
	else
		cmd_finding(
			CMD_WARN, "fork",
			"a kernel from 5.12 on, rdma-core from 35 on; or "
			"UCX_IB_FORK_INIT=n and "
			"OMPI_MCA_opal_common_verbs_want_fork_support=0, and RDMAV_FORK_SAFE "
			"and IBV_FORK_SAFE unset, if nothing forks",
			"pinned pages are not copied for a child: in programs that call "
			"ibv_fork_init() nothing is registered ahead");
}
