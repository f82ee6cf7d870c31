// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The module and its devices: they come, answer, go and come back. See fake.h. */
#include <linux/dma-mapping.h>
#include <linux/module.h>

#include "fake.h"

static char *kinds = "all";
module_param(kinds, charp, 0444);

/* A slot of the bus with its adapter. What looks at it has the parameters' lock of the module.
 */
struct slot {
	struct device parent;
	struct device_dma_parameters dma;
	const struct kind *kind;
	struct adapter *adapter; /* NULL while it is unplugged */
};

static struct slot slots[32];

/* ---- answers ---- */

size_t adapter_fill(struct adapter *adapter, enum call call, void *out)
{
	const struct answer *answer = &adapter->kind->answers[call];

	memset(out, 0, ANSWER_SIZE);
	if (answer->bytes)
		memcpy(out, answer->bytes, answer->size);
	if (answer->is_numbered)
		*(u32 *)((char *)out + answer->number_at) = adapter_number(adapter);
	return answer->size;
}

/* Providers read all of an answer, also what their driver here does not know: it is 0. */
int adapter_answer(struct ib_device *ib, enum call call, struct ib_udata *udata)
{
	char out[ANSWER_SIZE];
	size_t size;

	if (!udata || !udata->outlen)
		return 0;
	adapter_fill(adapter_of(ib), call, out);
	size = min(sizeof out, udata->outlen);
	return ib_copy_to_udata(udata, out, size);
}

/* ---- a bus, as providers look at the modalias and the PCI ids of a device's parent ---- */

static const struct kind *kind_of(struct device *parent)
{
	return container_of(parent, struct slot, parent)->kind;
}

#define SHOW(name, ...)                                                                  \
	static ssize_t name##_show(struct device *parent, struct device_attribute *attr, \
				   char *text)                                           \
	{                                                                                \
		const struct kind *kind = kind_of(parent);                               \
                                                                                         \
		return sysfs_emit(text, __VA_ARGS__);                                    \
	}                                                                                \
	static DEVICE_ATTR_RO(name)

SHOW(modalias, "pci:v%08Xd%08Xsv%08Xsd%08Xbc02sc00i00\n", kind->vendor, kind->device,
     kind->vendor, kind->device);
SHOW(vendor, "0x%04x\n", kind->vendor);
SHOW(device, "0x%04x\n", kind->device);
static struct attribute *bus_attrs[] = {
	&dev_attr_modalias.attr,
	&dev_attr_vendor.attr,
	&dev_attr_device.attr,
	NULL,
};
ATTRIBUTE_GROUPS(bus);
static struct bus_type bus = {.name = "fake_rdma", .dev_groups = bus_groups};

/* The slots are static. */
static void release_parent(struct device *parent)
{
}

static int add_parent(struct slot *slot, const struct kind *kind)
{
	struct device *parent = &slot->parent;
	int error;

	slot->kind = kind;
	parent->bus = &bus;
	parent->release = release_parent;
	parent->coherent_dma_mask = DMA_BIT_MASK(64);
	parent->dma_mask = &parent->coherent_dma_mask;
	parent->dma_parms = &slot->dma;
	dev_set_name(parent, "0000:%02x:00.0", (int)(slot - slots) + 1);
	error = device_register(parent);
	if (error)
		slot->kind = NULL;
	else
		dma_set_max_seg_size(parent, UINT_MAX);
	return error;
}

/* ---- plug and unplug ---- */

static int plug(struct slot *slot)
{
	const struct kind *kind = slot->kind;
	struct ib_device_ops its = {.driver_id = kind->driver, .uverbs_abi_ver = kind->abi};
	struct adapter *adapter = ib_alloc_device(adapter, ib);
	int error;

	if (!adapter)
		return -ENOMEM;
	adapter->kind = kind;
	mutex_init(&adapter->lock);
	xa_init(&adapter->regions);
	adapter->ib.dev.parent = &slot->parent;
	adapter->ib.node_type = kind->is_infiniband ? RDMA_NODE_IB_CA : RDMA_NODE_UNSPECIFIED;
	adapter->ib.node_guid = cpu_to_be64(0x0002c90300000000 + (slot - slots));
	adapter->ib.phys_port_cnt = 1;
	adapter->ib.num_comp_vectors = 2;
	adapter->ib.driver_def = kind->methods;
	ib_set_device_ops(&adapter->ib, &fake_object_ops);
	ib_set_device_ops(&adapter->ib, &fake_region_ops);
	ib_set_device_ops(&adapter->ib, &its);
	error = ib_register_device(&adapter->ib, kind->name, &slot->parent);
	if (error)
		ib_dealloc_device(&adapter->ib);
	else
		slot->adapter = adapter;
	return error;
}

static void unplug(struct slot *slot)
{
	struct adapter *adapter = slot->adapter;

	slot->adapter = NULL;
	ib_unregister_device(&adapter->ib);
	ib_dealloc_device(&adapter->ib);
}

static struct slot *find_slot(const char *name)
{
	for (size_t i = 0; i < fake_n_kinds; i++)
		if (slots[i].kind && sysfs_streq(name, slots[i].kind->name))
			return &slots[i];
	return NULL;
}

static int set_plug(const char *name, const struct kernel_param *param)
{
	struct slot *slot = find_slot(name);

	return slot && !slot->adapter ? plug(slot) : -ENODEV;
}

static int set_unplug(const char *name, const struct kernel_param *param)
{
	struct slot *slot = find_slot(name);

	if (!slot || !slot->adapter)
		return -ENODEV;
	unplug(slot);
	return 0;
}

/* DEVICE, and the question that fake_ask() answers. */
static int set_ask(const char *text, const struct kernel_param *param)
{
	struct slot *slot;
	char name[32];
	int length;

	if (sscanf(text, "%31s%n", name, &length) != 1)
		return -EINVAL;
	slot = find_slot(name);
	return slot && slot->adapter ? fake_ask(slot->adapter, text + length) : -ENODEV;
}

static const struct kernel_param_ops ask_ops = {.set = set_ask};
static const struct kernel_param_ops plug_ops = {.set = set_plug};
static const struct kernel_param_ops unplug_ops = {.set = set_unplug};
module_param_cb(ask, &ask_ops, NULL, 0200);
module_param_cb(plug, &plug_ops, NULL, 0200);
module_param_cb(unplug, &unplug_ops, NULL, 0200);

/* ---- the module ---- */

/* Whether the comma-separated list has the name. */
static bool is_wanted(const char *name)
{
	size_t length = strlen(name);

	for (const char *at = kinds; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
		if (!strncmp(at, name, length) && (!at[length] || at[length] == ','))
			return true;
	return !strcmp(kinds, "all");
}

static void remove_all(void)
{
	for (size_t i = 0; i < fake_n_kinds; i++) {
		if (slots[i].adapter)
			unplug(&slots[i]);
		if (slots[i].kind)
			device_unregister(&slots[i].parent);
	}
	bus_unregister(&bus);
}

static int __init fake_init(void)
{
	int error = bus_register(&bus);

	if (error)
		return error;
	for (size_t i = 0; !error && i < fake_n_kinds; i++) {
		if (!is_wanted(fake_kinds[i].name))
			continue;
		error = add_parent(&slots[i], &fake_kinds[i]);
		if (!error)
			error = plug(&slots[i]);
		if (error)
			pr_err("fake_rdma: %s: error %d\n", fake_kinds[i].name, error);
	}
	if (error)
		remove_all();
	return error;
}

static void __exit fake_exit(void)
{
	remove_all();
}

module_init(fake_init);
module_exit(fake_exit);
MODULE_DESCRIPTION("RDMA adapters without hardware, for tests of user-space providers");
MODULE_LICENSE("Dual BSD/GPL");
