/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The only file that maps memory. os.h says what must stay true. Files are read by bare
 * system calls, for the reason given in io.c.
 */
#include <config.h>

#include "allocator/os.h"
#include "allocator/io.h"

#include <limits.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/mempolicy.h>
#include <linux/mman.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>

/*
 * Not MAP_NORESERVE: what becomes writable is then charged as vm.overcommit_memory says, so
 * that a growth step beyond memory and swap fails unless that is 1. Addresses alone are not
 * charged.
 */
#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS)

#ifndef MADV_POPULATE_WRITE /* glibc 2.35 */
#define MADV_POPULATE_WRITE 23
#endif

/* By system call number, so that the library links no function that returns memory. */
int pin_os_advise(void *addr, size_t n_bytes, enum pin_advice advice)
{
	static const int numbers[] = {MADV_NOHUGEPAGE, MADV_HUGEPAGE, MADV_DONTDUMP,
				      MADV_DODUMP, MADV_POPULATE_WRITE};

	return (int)pin_result(syscall(SYS_madvise, addr, n_bytes, numbers[advice]));
}

void pin_os_small_statics(void)
{
	extern char __bss_start[] __attribute__((visibility("hidden")));
	extern char _end[] __attribute__((visibility("hidden")));
	uintptr_t start = PIN_ALIGN_UP((uintptr_t)__bss_start, PIN_PAGE);
	uintptr_t end = PIN_ALIGN_UP((uintptr_t)_end, PIN_PAGE);

	if (end - start >= PIN_GRANULE)
		pin_os_advise((void *)start, end - start, PIN_SMALL_PAGES);
}

void *pin_os_reserve(size_t n_bytes)
{
	long p = pin_result(mmap(NULL, n_bytes, PROT_NONE, RESERVED, -1, 0));

	return p < 0 ? NULL : (void *)p;
}

/* msync(2) fails if a page is not mapped. By its number: libc's is a cancellation point. */
bool pin_os_is_mapped(const void *addr, size_t n_bytes)
{
	return !pin_result(syscall(SYS_msync, addr, n_bytes, MS_ASYNC));
}

int pin_os_resident(const void *addr, size_t n_pages, unsigned char *is_there)
{
	return (int)pin_result(mincore((void *)(uintptr_t)addr, n_pages * PIN_PAGE, is_there));
}

/*
 * The kernel unmaps the range before it finds that the pool has too few pages. So the
 * reservation is put back, unless it was never unmapped. If another thread has mapped
 * something there meanwhile, that mapping stays.
 */
static int reserve_again(void *addr, size_t n_bytes)
{
	long p = pin_result(
		mmap(addr, n_bytes, PROT_NONE, RESERVED | MAP_FIXED_NOREPLACE, -1, 0));

	return p == (long)addr || pin_os_is_mapped(addr, n_bytes) ? -ENOMEM : -EEXIST;
}

/* Without MAP_NORESERVE, which would turn a shortage of pages into a SIGBUS on first use. */
int pin_os_commit_hugetlb(void *addr, size_t n_bytes, size_t page_size)
{
	int size = page_size == PIN_GIB ? MAP_HUGE_1GB : MAP_HUGE_2MB;
	long p = pin_result(mmap(addr, n_bytes, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_HUGETLB | size,
				 -1, 0));

	return p < 0 ? reserve_again(addr, n_bytes) : 0;
}

int pin_os_commit(void *addr, size_t n_bytes)
{
	uintptr_t first = PIN_ALIGN_DOWN((uintptr_t)addr, PIN_PAGE);
	uintptr_t end = PIN_ALIGN_UP((uintptr_t)addr + n_bytes, PIN_PAGE);

	return pin_result(mprotect((void *)first, end - first, PROT_READ | PROT_WRITE))
		       ? -ENOMEM
		       : 0;
}

static size_t soft_limit(__rlimit_resource_t resource)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return SIZE_MAX;
	return limit.rlim_cur;
}

size_t pin_os_address_space_left(void)
{
	size_t limit = soft_limit(RLIMIT_AS), used;

	if (limit == SIZE_MAX)
		return SIZE_MAX;
	used = pin_io_number("/proc/self/statm", "", 0) * PIN_PAGE;
	return limit > used ? limit - used : 0;
}

/*
 * Whether the process is in a user namespace other than the initial one. uid_map says how many
 * users of each range this namespace has: only the initial one has all.
 */
static bool is_in_user_namespace(void)
{
	static _Atomic int answer; /* 0 not known yet, 1 no, 2 yes */
	char map[128];

	/* Without /proc a limit is assumed: to see none that is there makes calls fail. */
	if (!answer) {
		pin_io_read("/proc/self/uid_map", map, sizeof map);
		answer = strstr(map, " 4294967295") ? 1 : 2;
	}
	return answer == 2;
}

/*
 * Whether the process may exceed RLIMIT_MEMLOCK. The kernel ignores the capability in a user
 * namespace of its own.
 */
static bool may_exceed_memlock(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	return !pin_result(syscall(SYS_capget, &header, data)) &&
	       data[0].effective & (1u << CAP_IPC_LOCK) && !is_in_user_namespace();
}

size_t pin_os_data_limit(void)
{
	return soft_limit(RLIMIT_DATA);
}

/* Who finds no limit does not look again for a second: if there is one then, the kernel says
 * so. */
size_t pin_os_memlock_limit(void)
{
	static _Atomic uint64_t none_at;
	uint64_t now = pin_os_now_ns();
	size_t limit = now - none_at < 1000000000u ? SIZE_MAX : soft_limit(RLIMIT_MEMLOCK);

	if (limit != SIZE_MAX && !may_exceed_memlock())
		return limit;
	none_at = limit == SIZE_MAX ? none_at : now;
	return SIZE_MAX;
}

size_t pin_os_status(const char *name)
{
	return pin_io_number("/proc/self/status", name, 0) * PIN_KIB;
}

/*
 * The kernel reads the mask before it looks at what to do with it, and that is nothing: it
 * knows no such thing. No mask is at 0, so the page is asked for by its end. Nothing becomes
 * resident that was not.
 */
bool pin_os_may_read(uintptr_t page)
{
	return pin_result(syscall(SYS_rt_sigprocmask, -1, page + PIN_PAGE - _NSIG / 8, NULL,
				  _NSIG / 8)) != -EFAULT;
}

char *pin_os_map_file(int fd, size_t n_bytes)
{
	void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

int pin_os_write_memory(char *to, const void *from, size_t n_bytes)
{
	struct iovec local = {(void *)from, n_bytes}, remote = {to, n_bytes};
	ssize_t n = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);

	if (n < 0)
		return -errno;
	return (size_t)n == n_bytes ? 0 : -EIO;
}

bool pin_os_has_swap(void)
{
	struct sysinfo info;

	return sysinfo(&info) || info.totalswap;
}

size_t pin_os_ram(void)
{
	struct sysinfo info;

	return sysinfo(&info) ? 0 : (size_t)info.totalram * info.mem_unit;
}

/*
 * Adding zero is a write that keeps what other threads write there. The zero is volatile,
 * because clang would turn an addition of a constant zero into a read.
 */
void pin_os_touch(void *addr, size_t n_bytes)
{
	volatile char nothing = 0;

	for (size_t i = 0; i < n_bytes; i += PIN_PAGE)
		atomic_fetch_add_explicit((_Atomic char *)addr + i, nothing,
					  memory_order_relaxed);
}

/* Before Linux 5.14 the kernel does not know the advice. A signal may end it early. */
int pin_os_populate(void *addr, size_t n_bytes)
{
	int error = pin_os_advise(addr, n_bytes, PIN_POPULATED);

	if (error == -ENOMEM || error == -EFAULT || error == -EHWPOISON)
		return -ENOMEM;
	if (error)
		pin_os_touch(addr, n_bytes);
	return 0;
}

unsigned pin_os_processors(void)
{
	cpu_set_t set;
	int n = pin_result(sched_getaffinity(0, sizeof set, &set)) ? 1 : CPU_COUNT(&set);

	return n > 0 ? (unsigned)n : 1;
}

#define POOLS	  "/sys/kernel/mm/hugepages/hugepages-"
#define POOL_2MIB POOLS "2048kB/"
#define POOL_1GIB POOLS "1048576kB/"

size_t pin_os_hugetlb_free(size_t page_size)
{
	bool is_1gib = page_size == PIN_GIB;
	size_t owed = pin_io_number(
		is_1gib ? POOL_1GIB "resv_hugepages" : POOL_2MIB "resv_hugepages", "", 0);
	size_t unused = pin_io_number(
		is_1gib ? POOL_1GIB "free_hugepages" : POOL_2MIB "free_hugepages", "", 0);

	return unused > owed ? unused - owed : 0;
}

/*
 * glibc 2.35 and newer register an area for each thread where the kernel keeps the number, at
 * its start: restartable sequences, rseq(2).
 */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));

uint32_t pin_os_processor(void)
{
	int processor;

	if (PIN_LIKELY(&__rseq_size && __rseq_size))
		return *(volatile uint32_t *)((char *)__builtin_thread_pointer() +
					      __rseq_offset);
	processor = (int)pin_result(sched_getcpu());
	return processor > 0 ? (uint32_t)processor : 0;
}

uint32_t pin_os_node(void)
{
	unsigned node = 0;

	pin_result(getcpu(NULL, &node));
	return node;
}

/* The file contains a list such as "0", "0-1" or "0,2". */
bool pin_os_has_nodes(void)
{
	static _Atomic int n; /* 1, or 2 for more; 0: not known yet */
	char text[64];

	if (!n)
		n = pin_io_read("/sys/devices/system/node/online", text, sizeof text) > 0 &&
				    text[strspn(text, "0123456789")] != '\n'
			    ? 2
			    : 1;
	return n > 1;
}

#define NODE_WORDS 16 /* 1024 nodes, the maximum of any kernel */

bool pin_os_has_node(uint32_t node)
{
	unsigned long nodes[NODE_WORDS] = {1};
	size_t bits = 8 * sizeof *nodes;

	/* If the kernel knows of none, there is one. */
	pin_result(syscall(SYS_get_mempolicy, NULL, nodes, NODE_WORDS * bits, NULL,
			   MPOL_F_MEMS_ALLOWED));
	return node < NODE_WORDS * bits && nodes[node / bits] >> node % bits & 1;
}

bool pin_os_prefer_node(uint32_t node)
{
	unsigned long nodes[NODE_WORDS] = {0};
	size_t word = node / (8 * sizeof *nodes);
	int mode = MPOL_DEFAULT;

	if (word >= PIN_ARRAY_SIZE(nodes))
		return false;
	nodes[word] = 1ul << node % (8 * sizeof *nodes);
	return !pin_result(syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0)) &&
	       mode == MPOL_DEFAULT &&
	       !pin_result(syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, 8 * sizeof nodes));
}

void pin_os_prefer_none(void)
{
	pin_result(syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0));
}

void pin_os_wait_ms(_Atomic uint32_t *word, uint32_t seen, uint64_t ms)
{
	struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

	pin_result(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen,
			   ms == UINT64_MAX ? NULL : &time, NULL, 0));
}

void pin_os_wait(_Atomic uint32_t *word, uint32_t seen)
{
	pin_os_wait_ms(word, seen, UINT64_MAX);
}

void pin_os_wake(_Atomic uint32_t *word)
{
	pin_result(syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0));
}

void pin_os_wake_one(_Atomic uint32_t *word)
{
	pin_result(syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
}

uint64_t pin_os_time_ns(clockid_t clock)
{
	struct timespec now = {0};

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void pin_os_sleep_ms(uint64_t ms)
{
	struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

	pin_result(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL));
}
