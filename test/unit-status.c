/* SPDX-License-Identifier: BSD-2-Clause */
/* What is read of this process's state; each case in a process of its own, which reads it once.
 */
#include <config.h>

#include "allocator/file.h"
#include "allocator/log.h"
#include "allocator/status.h"
#include "test/tap.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The linker puts this in place of the library's (--wrap). */
long __wrap_pin_file_read(const char *path, char *buf, size_t size);
long __real_pin_file_read(const char *path, char *buf, size_t size);

static const char *given; /* instead of what the kernel says; "" if nothing can be read */

long __wrap_pin_file_read(const char *path, char *buf, size_t size)
{
	if (!given)
		return __real_pin_file_read(path, buf, size);
	return *given ? (long)pin_format(buf, size, "%s", given) : -1;
}

static bool holds_in_child(bool (*holds)(void))
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(!holds());
	return waitpid(pid, &status, 0) == pid && !status;
}

static bool counts_as_the_kernel(void)
{
	cpu_set_t kernels, ours;

	return !sched_getaffinity(0, sizeof kernels, &kernels) &&
	       !pin_status_affinity(0, sizeof ours, &ours) && CPU_COUNT(&ours) > 0 &&
	       CPU_COUNT(&ours) == CPU_COUNT(&kernels) &&
	       pin_status_sysconf(_SC_NPROCESSORS_ONLN) == CPU_COUNT(&kernels) &&
	       pin_status_sysconf(_SC_PAGESIZE) == getpagesize();
}

static bool counts_one(void)
{
	cpu_set_t set;
	int cpu = sched_getcpu();

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return !sched_setaffinity(0, sizeof set, &set) &&
	       !pin_status_affinity(0, sizeof set, &set) && CPU_COUNT(&set) == 1;
}

static bool is_without_filter(void)
{
	return !pin_status_is_filtered();
}

static bool has_filter(void)
{
	struct sock_filter filter[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {1, filter};

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) &&
	       pin_status_is_filtered();
}

static bool is_not_known(const char *text)
{
	given = text;
	return pin_status_is_filtered() && counts_as_the_kernel();
}

static bool is_not_read(void)
{
	return is_not_known("");
}

/* As the groups of a user may be too many for what is read. */
static bool is_cut_short(void)
{
	return is_not_known("Name:\tcut\nGroups:\t1 2 3");
}

static bool counts_words(void)
{
	cpu_set_t set;

	given = "Name:\tmany\nSeccomp:\t0\nCpus_allowed:\t5,000000f0,00000001\n";
	return !pin_status_is_filtered() && !pin_status_affinity(0, sizeof set, &set) &&
	       CPU_COUNT(&set) == 7;
}

int main(void)
{
	ok(holds_in_child(counts_as_the_kernel), "the number of processors is the kernel's");
	ok(holds_in_child(counts_one), "it is one for a process limited to one");
	/* A machine that runs the tests in a container may have a filter for all of it. */
	ok(prctl(PR_GET_SECCOMP) || holds_in_child(is_without_filter),
	   "no system call filter is reported without one");
	ok(holds_in_child(has_filter), "a system call filter of any kind is reported");
	ok(holds_in_child(is_not_read),
	   "if nothing can be read, a filter is assumed and the kernel asked for processors");
	ok(holds_in_child(is_cut_short), "so it is if the file was truncated");
	ok(holds_in_child(counts_words), "processors beyond the first 32 are counted");
	return done_testing();
}
