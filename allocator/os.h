/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * All system calls on the allocation path. No function here returns memory to the kernel, and
 * none may ever be added.
 *
 * All functions are thread-safe and async-signal-safe, never allocate, and but for
 * pin_os_map_file() and pin_os_write_memory() preserve errno.
 */
#pragma once

#include "allocator/base.h"

#include <stdatomic.h>
#include <time.h>

/*
 * Excludes the library's static variables from transparent huge pages. Most are tables of
 * which a process uses little; where huge pages are always used, the first access to one
 * would allocate and zero 2 MiB. Must be called before any of them is touched: by the
 * constructor or by the first malloc, whichever comes first.
 */
void pin_os_small_statics(void);

/*
 * Reserves n_bytes of address space without memory behind it. Returns NULL if the kernel
 * refuses (RLIMIT_AS, or no gap that large).
 */
void *pin_os_reserve(size_t n_bytes);

/*
 * The only calls of madvise(2):
 *   SMALL_PAGES  no huge pages: where they are always used, a table of which one word is used
 *                would take 2 MiB
 *   HUGE_PAGES   transparent huge pages, so that processor and adapter can map memory with
 *                them; nothing happens if the kernel has none
 *   NOT_DUMPED   left out of core dumps, as reservations should be, too: a debugger that dumps
 *                a running process (gcore) writes addresses without memory as zeros
 *   DUMPED       in them, as all memory is at first
 *   POPULATED    made resident, in memory that the program has: an error, and nothing is
 *                touched, if some of it may not be written, or the kernel does not know how
 *                (before Linux 5.14)
 * Returns 0 or -errno.
 */
enum pin_advice { PIN_SMALL_PAGES, PIN_HUGE_PAGES, PIN_NOT_DUMPED, PIN_DUMPED, PIN_POPULATED };
int pin_os_advise(void *addr, size_t n_bytes, enum pin_advice advice);

/*
 * Replaces [addr, addr + n_bytes), multiples of the page size in an unused part of a
 * reservation, by huge pages of the system's pool (hugetlb), readable and writable. Their size
 * is PIN_GRANULE or PIN_GIB. The pool reserves the
 * pages, so touching them later cannot fail. Returns 0; -ENOMEM if the pool has too few
 * pages, or there is no pool: the reservation is as it was; -EEXIST if another mapping of the
 * process has taken some of these addresses meanwhile: they must not be used any more.
 */
int pin_os_commit_hugetlb(void *addr, size_t n_bytes, size_t page_size);

/* Pages of that size in the pool that are neither in use nor reserved. */
size_t pin_os_hugetlb_free(size_t page_size);

/*
 * Whether all pages of [addr, addr + n_bytes), which begins with one, are mapped.
 * Preserves errno.
 */
bool pin_os_is_mapped(const void *addr, size_t n_bytes);

/*
 * Sets bit 0 of a byte for each page, from addr on, that is in memory: of those that were never
 * touched, or are swapped out, it is 0. Returns 0 or -errno.
 */
int pin_os_resident(const void *addr, size_t n_pages, unsigned char *is_there);

/*
 * Makes [addr, addr + n_bytes) of a reservation readable and writable. Repeating it on memory
 * in use is harmless. Returns 0, or -ENOMEM when the commit limit (vm.overcommit_memory=2) or
 * RLIMIT_DATA is reached.
 */
int pin_os_commit(void *addr, size_t n_bytes);

/*
 * Bytes of address space that RLIMIT_AS still leaves to this process; SIZE_MAX without a
 * limit.
 */
size_t pin_os_address_space_left(void);

/* Bytes of writable private memory RLIMIT_DATA lets this process have; SIZE_MAX without one. */
size_t pin_os_data_limit(void);

/*
 * Bytes that RLIMIT_MEMLOCK lets this process pin; SIZE_MAX without a limit, or with
 * CAP_IPC_LOCK, because ib_umem_get() then ignores the limit.
 */
size_t pin_os_memlock_limit(void);

/*
 * A size in /proc/self/status, in bytes; 0 if it is not there. The name includes the newline
 * before it and the colon: "\nVmPin:" is the memory the process has pinned, where memory
 * registered twice counts twice.
 */
size_t pin_os_status(const char *name);

/* Bytes of memory of the machine; 0 if unknown. */
size_t pin_os_ram(void);

/* Whether it has any swap space; true if unknown. */
bool pin_os_has_swap(void);

/* Number of processors that the calling thread may run on, at least 1. */
unsigned pin_os_processors(void);

/*
 * Makes [addr, addr + n_bytes) resident. Contents do not change, even if other threads write
 * there at the same time.
 */
void pin_os_touch(void *addr, size_t n_bytes);

/*
 * The same by one system call, if the kernel has one for it. Returns 0; -ENOMEM if there is no
 * memory, where pin_os_touch() would be ended by a signal.
 */
int pin_os_populate(void *addr, size_t n_bytes);

/* The processor that the calling thread runs on, or was just running on. No system call. */
uint32_t pin_os_processor(void);

/*
 * The memory node of the processor that the calling thread runs on, from 0. No system call.
 */
uint32_t pin_os_node(void);

/* Whether the machine has more than one memory node. */
bool pin_os_has_nodes(void);

/* Whether the process may read a page, wherever it is. Preserves errno. */
bool pin_os_may_read(uintptr_t page);

/* Whether the process may have memory of this node. */
bool pin_os_has_node(uint32_t node);

/*
 * Maps the first n_bytes of a file, shared. It is to be written to by pin_os_write_memory()
 * only: that returns -errno where a store would raise SIGBUS, as the disk is full or the file
 * system has gone. NULL with errno set if it cannot be mapped.
 */
char *pin_os_map_file(int fd, size_t n_bytes);
int pin_os_write_memory(char *to, const void *from, size_t n_bytes);

/*
 * Makes the calling thread's page faults prefer memory of a node, until pin_os_prefer_none().
 * Returns false, and changes nothing, if the thread has a memory policy already or the kernel
 * refuses.
 */
bool pin_os_prefer_node(uint32_t node);
void pin_os_prefer_none(void);

/* Sleeps until *word differs from `seen` or the thread is woken. May return early. */
void pin_os_wait(_Atomic uint32_t *word, uint32_t seen);

/* As pin_os_wait(), but for at most `ms` milliseconds; UINT64_MAX for no limit. */
void pin_os_wait_ms(_Atomic uint32_t *word, uint32_t seen, uint64_t ms);

/* Wake every thread, or one, that is in pin_os_wait() on this word. */
void pin_os_wake(_Atomic uint32_t *word);
void pin_os_wake_one(_Atomic uint32_t *word);

/* The time of a clock in nanoseconds, and of the one that never goes back. */
uint64_t pin_os_time_ns(clockid_t clock);
#define pin_os_now_ns() pin_os_time_ns(CLOCK_MONOTONIC)

/* Sleeps for `ms` milliseconds, or until a signal handler has run. */
void pin_os_sleep_ms(uint64_t ms);
