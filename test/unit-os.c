/* SPDX-License-Identifier: BSD-2-Clause */
/* Answers of the machine's own kernel that are easily misunderstood. */
#include <config.h>

#include "allocator/os.h"
#include "allocator/io.h"
#include "test/beside.h"
#include "test/blocks.h"
#include "test/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define LIMIT (4 * PIN_MIB)

/* The linker puts these in place of the library's (--wrap). No va_arg(), which would read what
 * nobody has passed. */
long __real_syscall(long number, ...);
size_t __real_pin_io_number(const char *path, const char *field, size_t otherwise);

static bool interrupts;		    /* each read(2) once, each write(2) after half of it */
static bool is_filtered;	    /* calls that are not needed fail */
static size_t unused = 7, owed = 3; /* of the system's pool */

long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	static bool again;
	int error = 0;

	if (is_filtered && (number == SYS_madvise || number == SYS_rt_sigtimedwait))
		error = EINVAL;
	if (number == SYS_read && interrupts && (again = !again))
		error = EINTR;
	if (number == SYS_write && interrupts)
		c = (c + 1) / 2;
	if (!error)
		return __real_syscall(number, a, b, c, d, e, f);
	errno = error;
	return -1;
}

size_t __wrap_pin_io_number(const char *path, const char *field, size_t otherwise)
{
	if (strstr(path, "/resv_hugepages"))
		return owed;
	return strstr(path, "/free_hugepages") ? unused
					       : __real_pin_io_number(path, field, otherwise);
}

/*
 * As root of a user namespace of its own, which has all capabilities in it; then, if wanted,
 * where there is no /proc.
 */
static bool become_root_of_nothing(bool without_proc)
{
	char map[64];
	size_t n = (size_t)snprintf(map, sizeof map, "0 %u 1\n", geteuid());
	int fd;

	if (unshare(CLONE_NEWUSER))
		return false;
	fd = open("/proc/self/uid_map", O_WRONLY);
	return write(fd, map, n) == (ssize_t)n && (!without_proc || !chroot("/boot"));
}

/* For a user without privileges. */
static bool memlock_is_limited(void)
{
	const struct rlimit few = {LIMIT, LIMIT};

	return setrlimit(RLIMIT_MEMLOCK, &few) || (!geteuid() && seteuid(1)) ||
	       pin_os_memlock_limit() == LIMIT;
}

static bool has_no_addresses(void)
{
	const struct rlimit none = {PIN_PAGE, PIN_PAGE};

	return !setrlimit(RLIMIT_AS, &none) && !pin_os_address_space_left();
}

static bool without_proc;

static bool is_limited_in_namespace(void)
{
	const struct rlimit few = {LIMIT, LIMIT};

	if (!setrlimit(RLIMIT_MEMLOCK, &few) && become_root_of_nothing(without_proc))
		return pin_os_memlock_limit() == LIMIT;
	printf("# there are no such namespaces here\n");
	fflush(stdout);
	return true;
}

static void interrupted(void)
{
	int file = memfd_create("file", 0);
	char path[32];

	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	interrupts = true;
	ok(!pin_io_write(file, "is\nno\nnow 71", 12) && pin_io_number(path, "\nnow", 0) == 71,
	   "what a signal interrupts is written and read to its end");
	interrupts = false;
	close(file);
}

/* A signal that a write has not sent. */
static void pending(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	raise(SIGPIPE);
	ok(!pin_io_write_line(memfd_create("file", 0), "line\n", 5) && !sigpending(&set) &&
		   sigismember(&set, SIGPIPE),
	   "a SIGPIPE that the program has blocked is there after a line");
}

/* SIGPIPE cannot be taken back there. */
static bool survives_filter(void)
{
	int ends[2];

	is_filtered = true;
	return !pipe(ends) && !close(ends[0]) &&
	       pin_io_write_line(ends[1], "line\n", 5) == -EPIPE;
}

static void of_pool(void)
{
	uintptr_t addr = PIN_ALIGN_UP((uintptr_t)pin_os_reserve(128 * PIN_GIB), PIN_GRANULE);

	/* No huge page begins with the second: the kernel changes nothing. */
	for (size_t i = 0; i < 2; i++)
		ok(pin_os_commit_hugetlb((void *)(addr + i * PIN_PAGE), 64 * PIN_GIB,
					 PIN_GRANULE) == -ENOMEM &&
			   pin_os_is_mapped((void *)addr, 128 * PIN_GIB - PIN_GRANULE),
		   "addresses for which the system's pool has too little are the library's");
	ok(pin_os_hugetlb_free(PIN_GRANULE) == 4, "pages that others are owed are not free");
	owed = 8;
	ok(!pin_os_hugetlb_free(PIN_GIB), "nor are there any if these are more");
}

static void populated(void)
{
	unsigned char is_there[4] = {0};
	char *p = pin_os_reserve(4 * PIN_PAGE);

	ok(pin_os_populate(pin_os_map_file(memfd_create("empty", 0), PIN_PAGE), PIN_PAGE) ==
		   -ENOMEM,
	   "a page that would end the program is no memory");
	is_filtered = true;
	ok(!pin_os_commit(p, 4 * PIN_PAGE) && !pin_os_populate(p, 4 * PIN_PAGE) &&
		   !pin_os_resident(p, 4, is_there) && is_filled((char *)is_there, 1, 4),
	   "pages are there where the kernel does not know the advice");
	is_filtered = false;
}

int main(void)
{
	interrupted();
	populated();
	for (int i = 0; i < 2; i++) {
		without_proc = i;
		ok(in_child(is_limited_in_namespace),
		   "a capability in a user namespace does not lift RLIMIT_MEMLOCK%s",
		   without_proc ? ", without /proc" : "");
	}
	ok(in_child(memlock_is_limited), "without the capability RLIMIT_MEMLOCK holds");
	ok(in_child(has_no_addresses),
	   "there are no addresses where more are used than may be");
	ok(in_child(survives_filter), "a line for nobody sends no SIGPIPE");
	of_pool();
	pending();
	return done_testing();
}
