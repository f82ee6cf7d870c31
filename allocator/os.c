/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The only file that maps memory. os.h says what must stay true. Files are read by bare
 * system calls, for the reason given in file.c.
 */
#include <config.h>

#include "allocator/os.h"
#include "allocator/file.h"
#include "allocator/status.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <linux/mempolicy.h>
#include <linux/mman.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RESERVED (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

#ifndef MADV_POPULATE_WRITE /* glibc 2.35 */
#define MADV_POPULATE_WRITE 23
#endif

enum advice { SMALL_PAGES, HUGE_PAGES, NOT_DUMPED, DUMPED, POPULATED };

/*
 * The only call of madvise(2), with only these values: it is made by system call number, so
 * that the library links no function that returns memory.
 */
static int advise(void *addr, size_t n_bytes, enum advice advice)
{
	static const int numbers[] = {MADV_NOHUGEPAGE, MADV_HUGEPAGE, MADV_DONTDUMP,
				      MADV_DODUMP, MADV_POPULATE_WRITE};
	int saved = errno, error = 0;

	if (pin_status_is_filtered())
		return -EINVAL;
	if (syscall(SYS_madvise, addr, n_bytes, numbers[advice]))
		error = -errno;
	errno = saved;
	return error;
}

void pin_os_small_statics(void)
{
	extern char __bss_start[] __attribute__((visibility("hidden")));
	extern char _end[] __attribute__((visibility("hidden")));
	PIN_WRITTEN_FIRST static _Atomic bool done;
	uintptr_t start = PIN_ALIGN_UP((uintptr_t)__bss_start, PIN_PAGE);
	uintptr_t end = PIN_ALIGN_UP((uintptr_t)_end, PIN_PAGE);

	if (!done && end - start >= PIN_GRANULE)
		advise((void *)start, end - start, SMALL_PAGES);
	done = true;
}

void *pin_os_reserve(size_t n_bytes)
{
	int saved = errno;
	void *p = mmap(NULL, n_bytes, PROT_NONE, RESERVED, -1, 0);

	errno = saved;
	if (p == MAP_FAILED)
		return NULL;
	advise(p, n_bytes, SMALL_PAGES);
	return p;
}

void pin_os_use_huge(void *addr, size_t n_bytes)
{
	advise(addr, n_bytes, HUGE_PAGES);
}

void pin_os_leave_out_of_dumps(void *addr, size_t n_bytes)
{
	advise(addr, n_bytes, NOT_DUMPED);
}

void pin_os_put_into_dumps(void *addr, size_t n_bytes)
{
	advise(addr, n_bytes, DUMPED);
}

/*
 * The kernel unmaps the range before it finds that the pool has too few pages. So the
 * reservation is put back, unless it was never unmapped. If another thread has mapped
 * something there meanwhile, that mapping stays.
 */
static int reserve_again(void *addr, size_t n_bytes)
{
	void *p = mmap(addr, n_bytes, PROT_NONE, RESERVED | MAP_FIXED_NOREPLACE, -1, 0);

	if (p == addr) {
		advise(addr, n_bytes, SMALL_PAGES);
		return -ENOMEM;
	}
	/* msync() fails if a page of the range is not mapped. */
	return msync(addr, n_bytes, MS_ASYNC) ? -EEXIST : -ENOMEM;
}

/* Without MAP_NORESERVE, which would turn a shortage of pages into a SIGBUS on first use. */
int pin_os_commit_hugetlb(void *addr, size_t n_bytes, size_t page_size)
{
	int saved = errno, size = page_size == PIN_GIB ? MAP_HUGE_1GB : MAP_HUGE_2MB;
	void *p = mmap(addr, n_bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_HUGETLB | size, -1, 0);
	int error = p == MAP_FAILED ? reserve_again(addr, n_bytes) : 0;

	errno = saved;
	return error;
}

void *pin_os_map_shared(int fd, size_t n_bytes)
{
	int saved = errno;
	void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	errno = saved;
	return p == MAP_FAILED ? NULL : p;
}

int pin_os_commit(void *addr, size_t n_bytes)
{
	uintptr_t first = PIN_ALIGN_DOWN((uintptr_t)addr, PIN_PAGE);
	uintptr_t end = PIN_ALIGN_UP((uintptr_t)addr + n_bytes, PIN_PAGE);
	int saved = errno;
	int failed = mprotect((void *)first, end - first, PROT_READ | PROT_WRITE);

	errno = saved;
	return failed ? -ENOMEM : 0;
}

/* In which Linux 5.7 is the first to know MREMAP_DONTUNMAP. */
#define MOVE (MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)

/*
 * The only call of mremap(2). The kernel may have unmapped what was at `to` before it refused
 * (huge pages of the pool, say). If something is there then, nobody knows whose it is.
 */
int pin_os_move(void *from, void *to, size_t n_bytes)
{
	int saved = errno, error = 0;

	if (pin_status_is_filtered())
		return -ENOTSUP;
	if (syscall(SYS_mremap, from, n_bytes, n_bytes, MOVE, to) == -1)
		error = mmap(to, n_bytes, PROT_READ | PROT_WRITE,
			     RESERVED | MAP_FIXED_NOREPLACE, -1, 0) == to
				? -ENOTSUP
				: -ENOMEM;
	errno = saved;
	return error;
}

static size_t number_at(const char *text)
{
	size_t n = 0;

	for (; *text >= '0' && *text <= '9'; text++)
		n = n * 10 + (size_t)(*text - '0');
	return n;
}

/* The first number of /proc/self/statm: pages of address space in use. */
static size_t address_space_used(void)
{
	char text[128];

	if (pin_file_read("/proc/self/statm", text, sizeof text) <= 0)
		return 0;
	return number_at(text) * PIN_PAGE;
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
	used = address_space_used();
	return limit > used ? limit - used : 0;
}

/*
 * Whether the process is in a user namespace other than the initial one. The first line of
 * uid_map says where this namespace's user 0 is in the parent namespace, and how many users
 * follow: only the initial one maps all.
 */
static bool is_in_user_namespace(void)
{
	char map[128];
	size_t i = 0;

	/* Without /proc a limit is assumed: to see none that is there makes calls fail. */
	if (pin_file_read("/proc/self/uid_map", map, sizeof map) <= 0)
		return true;
	for (int number = 0; number < 2; number++) {
		i += strspn(map + i, " ");
		i += strspn(map + i, "0123456789");
	}
	return number_at(map + i + strspn(map + i, " ")) != UINT32_MAX;
}

/*
 * Whether the process may exceed RLIMIT_MEMLOCK. The kernel ignores the capability in a user
 * namespace of its own.
 */
static bool may_exceed_memlock(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	int saved = errno;
	long failed = syscall(SYS_capget, &header, data);

	errno = saved;
	return !failed && data[0].effective & (1u << CAP_IPC_LOCK) && !is_in_user_namespace();
}

size_t pin_os_data_limit(void)
{
	return soft_limit(RLIMIT_DATA);
}

size_t pin_os_memlock_set(void)
{
	return soft_limit(RLIMIT_MEMLOCK);
}

size_t pin_os_memlock_limit(void)
{
	size_t limit = pin_os_memlock_set();

	return limit != SIZE_MAX && may_exceed_memlock() ? SIZE_MAX : limit;
}

/* Returns the number of bytes read; 0 at the end of the file, or upon an error. */
static size_t read_some(int fd, char *buf, size_t size)
{
	ssize_t n;

	do
		n = syscall(SYS_read, fd, buf, size);
	while (n < 0 && errno == EINTR);
	return n > 0 ? (size_t)n : 0;
}

/* Longer than any line with a size. */
#define STATUS_LINE 64

/*
 * Reads in small pieces: reports are written on small stacks, and some lines have no maximum
 * length.
 */
static size_t find_size(int fd, const char *name)
{
	char text[8 * STATUS_LINE + 1], *p = NULL;
	size_t kept = 0, n;

	while (!p && (n = read_some(fd, text + kept, sizeof text - 1 - kept))) {
		n += kept;
		text[n] = '\0';
		p = strstr(text, name);
		if (p && !strchr(p + 1, '\n'))
			p = NULL;
		kept = n < STATUS_LINE ? n : STATUS_LINE;
		if (!p)
			memmove(text, text + n - kept, kept);
	}
	if (!p)
		return 0;
	p += strlen(name);
	return number_at(p + strspn(p, " \t")) * PIN_KIB;
}

size_t pin_os_status(const char *name)
{
	int saved = errno;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
	size_t size = 0;

	if (fd >= 0) {
		size = find_size(fd, name);
		syscall(SYS_close, fd);
	}
	errno = saved;
	return size;
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
	int error = advise(addr, n_bytes, POPULATED);

	if (error == -ENOMEM || error == -EFAULT || error == -EHWPOISON)
		return -ENOMEM;
	if (error)
		pin_os_touch(addr, n_bytes);
	return 0;
}

unsigned pin_os_processors(void)
{
	cpu_set_t set;
	int saved = errno;
	int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);

	errno = saved;
	return n > 0 ? (unsigned)n : 1;
}

/* The number in a file; 0 if it cannot be read. */
static size_t number_in(const char *path)
{
	char text[32];

	return pin_file_read(path, text, sizeof text) > 0 ? number_at(text) : 0;
}

/* The kernel's default, used if the setting cannot be read. */
#define DEFAULT_MAX_MAPPINGS 65530

size_t pin_os_most_mappings(void)
{
	size_t n = number_in("/proc/sys/vm/max_map_count");

	return n ? n : DEFAULT_MAX_MAPPINGS;
}

/* Eight characters as a number. */
static uint64_t letters(const char text[9])
{
	uint64_t word;

	memcpy(&word, text, sizeof word);
	return __builtin_bswap64(word);
}

/*
 * Whether the last eight characters say that a device is mapped, or that KNEM is used, whose
 * device is not. Shared memory, zeroes and huge pages are in /dev as well.
 */
static bool tells_of_device(uint64_t last)
{
	if ((uint32_t)last == (uint32_t)letters("    knem"))
		return true;
	return last >> 16 == letters(" /dev/  ") >> 16 && last != letters(" /dev/sh") &&
	       last != letters(" /dev/ze") && last != letters(" /dev/hu");
}

size_t pin_os_mappings(bool *has_device)
{
	uint64_t last = 0;
	char text[4096];
	int saved = errno;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t n_lines = 0, n;

	while (fd >= 0 && (n = read_some(fd, text, sizeof text)))
		for (size_t i = 0; i < n; i++) {
			last = last << 8 | (unsigned char)text[i];
			n_lines += text[i] == '\n';
			*has_device |= tells_of_device(last);
		}
	if (fd >= 0)
		syscall(SYS_close, fd);
	errno = saved;
	return n_lines ? n_lines : SIZE_MAX;
}

#define POOLS	  "/sys/kernel/mm/hugepages/hugepages-"
#define POOL_2MIB POOLS "2048kB/"
#define POOL_1GIB POOLS "1048576kB/"

size_t pin_os_hugetlb_free(size_t page_size)
{
	bool is_1gib = page_size == PIN_GIB;
	size_t owed = number_in(is_1gib ? POOL_1GIB "resv_hugepages"
					: POOL_2MIB "resv_hugepages");
	size_t unused = number_in(is_1gib ? POOL_1GIB "free_hugepages"
					  : POOL_2MIB "free_hugepages");

	return unused > owed ? unused - owed : 0;
}

/* MAX_PAGE_ORDER. The setting is greater while no driver asks for reports (Linux 5.14). */
#define MAX_ORDER 10

bool pin_os_host_reclaims(void)
{
	size_t order = number_in("/sys/module/page_reporting/parameters/page_reporting_order");

	return order && order <= MAX_ORDER;
}

uint32_t pin_os_node(void)
{
	unsigned node = 0;
	int saved = errno;

	getcpu(NULL, &node);
	errno = saved;
	return node;
}

/* The file contains a list such as "0", "0-1" or "0,2". */
bool pin_os_has_nodes(void)
{
	char text[64];

	return pin_file_read("/sys/devices/system/node/online", text, sizeof text) > 0 &&
	       text[strspn(text, "0123456789")] != '\n';
}

#define NODE_WORDS 16 /* 1024 nodes, the maximum of any kernel */

bool pin_os_has_node(uint32_t node)
{
	unsigned long nodes[NODE_WORDS] = {1};
	size_t bits = 8 * sizeof *nodes;
	int saved = errno;

	/* If the kernel knows of none, there is one. */
	syscall(SYS_get_mempolicy, NULL, nodes, NODE_WORDS * bits, NULL, MPOL_F_MEMS_ALLOWED);
	errno = saved;
	return node < NODE_WORDS * bits && nodes[node / bits] >> node % bits & 1;
}

bool pin_os_prefer_node(uint32_t node)
{
	unsigned long nodes[NODE_WORDS] = {0};
	size_t word = node / (8 * sizeof *nodes);
	int saved = errno, mode = MPOL_DEFAULT;
	bool set;

	if (word >= PIN_ARRAY_SIZE(nodes))
		return false;
	nodes[word] = 1ul << node % (8 * sizeof *nodes);
	set = !syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) && mode == MPOL_DEFAULT &&
	      !syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, 8 * sizeof nodes);
	errno = saved;
	return set;
}

void pin_os_prefer_none(void)
{
	int saved = errno;

	syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0);
	errno = saved;
}

void pin_os_wait_ms(_Atomic uint32_t *word, uint32_t seen, uint64_t ms)
{
	struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, ms == UINT64_MAX ? NULL : &time,
		NULL, 0);
	errno = saved;
}

void pin_os_wait(_Atomic uint32_t *word, uint32_t seen)
{
	pin_os_wait_ms(word, seen, UINT64_MAX);
}

static void wake(_Atomic uint32_t *word, int most)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
	errno = saved;
}

void pin_os_wake(_Atomic uint32_t *word)
{
	wake(word, INT_MAX);
}

void pin_os_wake_one(_Atomic uint32_t *word)
{
	wake(word, 1);
}

uint64_t pin_os_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void pin_os_sleep_ms(uint64_t ms)
{
	struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
	int saved = errno;

	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL);
	errno = saved;
}
