/* SPDX-License-Identifier: BSD-2-Clause */
/* What the ranks of a node may pin together: PINALLOC_NODE_PINNED, or a proposal for it. */
#include <config.h>

#include "allocator/cgroup.h"
#include "allocator/log.h"
#include "allocator/options.h"
#include "allocator/os.h"
#include "preload/command/check.h"

#include <stdlib.h>

/* The percentage that a single process may pin by default, and that is proposed for all. */
#define PERCENT 75

/* Those that a launcher or batch system starts here, or 0. Slurm says 4(x2),3 for three nodes.
 */
static size_t ranks_here(void)
{
	static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
					    "PMI_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE",
					    "SLURM_TASKS_PER_NODE"};
	size_t n = 0;

	for (size_t i = 0; i < PIN_ARRAY_SIZE(names) && !n; i++)
		if (getenv(names[i]))
			n = strtoul(getenv(names[i]), NULL, 10);
	return n;
}

static size_t memory(void)
{
	size_t ram = pin_os_ram(), cgroup = pin_cgroup_limit();

	return cgroup < ram ? cgroup : ram;
}

static void check_limit(size_t limit, size_t n)
{
	if (limit > memory())
		cmd_check_say(CMD_WARN, "node budget",
			      "lower PINALLOC_NODE_PINNED, or unset it",
			      "all processes on this node may pin %s together, of %s of memory",
			      PIN_SIZE(limit), PIN_SIZE(memory()));
	else
		cmd_check_say(CMD_OK, "node budget", NULL,
			      "all processes on this node may pin %s together, each of %zu at "
			      "least %s",
			      PIN_SIZE(limit), n, PIN_SIZE(limit / n));
}

/* A size, if a cgroup has less than the machine: a percentage would be one of the machine's. */
static void propose(size_t n)
{
	size_t limit = memory() / 100 * PERCENT;
	char value[32];

	if (memory() < pin_os_ram())
		pin_format(value, sizeof value, "%zuM", limit / PIN_MIB);
	else
		pin_format(value, sizeof value, "%d%%", PERCENT);
	cmd_check_say(CMD_OK, "node budget", NULL,
		      "each process may pin %s, however many there are on this node; to let "
		      "them share that, set PINALLOC_NODE_PINNED=%s: %s for each of %zu",
		      pin_options.max_pinned < limit ? PIN_SIZE(pin_options.max_pinned)
						     : PIN_SIZE(limit),
		      value, PIN_SIZE(limit / n), n);
}

void cmd_check_node(void)
{
	size_t n = ranks_here();

	if (!n)
		n = pin_os_processors();
	if (pin_options.node_pinned)
		check_limit(pin_options.node_pinned, n);
	else if (n > 1)
		propose(n);
}
