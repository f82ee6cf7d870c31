/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether the kernel tells the library of memory that the program replaces. */
#include <config.h>

#include "allocator/options.h"
#include "allocator/os.h"
#include "preload/command/command.h"
#include "regpool/uffd.h"

#include <errno.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of Linux 5.19. */
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

#define UNNOTICED "memory that a program replaces goes unnoticed"

/* As regpool/watch.c does. Returns 0 or an errno value. */
static int try_userfaultfd(uint64_t *features)
{
	struct uffdio_api api = {.api = UFFD_API, .features = PIN_UFFD_EVENTS};
	int fd = pin_uffd_open();

	if (fd < 0 || ioctl(fd, UFFDIO_API, &api))
		return errno;
	*features = api.features;
	if (!(api.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP))
		return EOPNOTSUPP;
	return close_range(~0u, ~0u, CLOSE_RANGE_UNSHARE) ? errno : 0;
}

static void report_userfaultfd(const void *arg, int out)
{
	uint64_t features = 0;
	int error = try_userfaultfd(&features);

	(void)arg;
	dprintf(out, "%d %lx", error, features);
}

static const char *cure_of_userfaultfd(int error)
{
	bool is_refused = error == EPERM || (error == ENOSYS && pin_os_is_filtered());

	if (error == EACCES)
		return "allow it in the policy of SELinux";
	return is_refused ? "allow userfaultfd and close_range in the container's seccomp "
			    "profile"
			  : "a kernel from 5.9 on, with CONFIG_USERFAULTFD";
}

static void judge_userfaultfd(int error, uint64_t features)
{
	if (error)
		cmd_finding(CMD_WARN, "userfaultfd", cure_of_userfaultfd(error),
			    "%s: " UNNOTICED, strerrordesc_np(error));
	else if (!(features & UFFD_FEATURE_WP_HUGETLBFS_SHMEM))
		cmd_finding(CMD_WARN, "userfaultfd", "a kernel from 5.19 on",
			    "shared memory and hugetlb pages that a program replaces go "
			    "unnoticed");
	else
		cmd_finding(CMD_OK, "userfaultfd", NULL,
			    "memory that a program replaces is noticed, but for pages of files "
			    "and System V shared memory");
}

/* In a child, because a filter may kill the process for it. */
void cmd_check_userfaultfd(void)
{
	uint64_t features = 0;
	int error = EAGAIN, status;
	char text[64] = "";

	if (!pin_options.watch) {
		cmd_finding(CMD_WARN, "userfaultfd", "unset it",
			    "PINALLOC_WATCH=off: " UNNOTICED);
		return;
	}
	status = cmd_try(report_userfaultfd, NULL, text, sizeof text);
	sscanf(text, "%d %lx", &error, &features);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
		cmd_finding(CMD_FAIL, "userfaultfd",
			    "set PINALLOC_WATCH=off, or allow the call",
			    "a system call filter kills programs that register memory, for "
			    "this call");
	else
		judge_userfaultfd(error, features);
}
