/* SPDX-License-Identifier: BSD-2-Clause */
/* What userfaultfd(2) needs, here and in `pinalloc check`. */
#ifndef PIN_UFFD_H
#define PIN_UFFD_H

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of Linux 5.11. */
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

/* The events the kernel must support. */
#define PIN_UFFD_EVENTS \
	(UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP)

/*
 * Kernel faults are not needed; without them it takes no privilege. Before Linux 5.11 there is
 * no such flag, and by default no privilege either (vm.unprivileged_userfaultfd). -1 with
 * errno.
 */
static inline int pin_uffd_open(void)
{
	int flags = O_CLOEXEC | O_NONBLOCK;
	int fd = (int)syscall(SYS_userfaultfd, flags | UFFD_USER_MODE_ONLY);

	return fd < 0 && errno == EINVAL ? (int)syscall(SYS_userfaultfd, flags) : fd;
}

#endif
