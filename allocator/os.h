/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Everything asked of the kernel on the allocation path. There is no function
 * here that gives memory back, and there must never be one.
 *
 * All functions are thread-safe and async-signal-safe, never allocate, and
 * leave errno as they found it.
 */
#ifndef PIN_OS_H
#define PIN_OS_H

#include "allocator/base.h"

#include <stdatomic.h>

/*
 * The static variables get small pages: most are tables of which a process uses little, and
 * where huge pages are the rule the first of it would cost 2 MiB, zeroed. Once, before any
 * of them is touched: called where the library starts, be it by its constructor or by malloc.
 */
void pin_os_small_statics(void);

/*
 * Reserves n_bytes of address space without memory behind it, for small pages: a table
 * of which a word is used would take 2 MiB where huge ones are the rule. Returns NULL
 * when the kernel refuses (RLIMIT_AS, no hole that large).
 */
void *pin_os_reserve(size_t n_bytes);

/*
 * Lets the processor and the adapter map [addr, addr + n_bytes) with huge pages where
 * the kernel has any; a reservation has small ones until then. Where the kernel has no
 * such thing nothing happens.
 */
void pin_os_use_huge(void *addr, size_t n_bytes);

/*
 * Whether what there is of [addr, addr + n_bytes) goes into core dumps. All does from the
 * start; but a debugger that takes one of a process that runs (gcore) writes addresses without
 * memory, too, as zeros.
 */
void pin_os_leave_out_of_dumps(void *addr, size_t n_bytes);
void pin_os_put_into_dumps(void *addr, size_t n_bytes);

/*
 * Puts pages of the system's pool of 2 MiB pages in the place of [addr, addr + n_bytes),
 * multiples of them of a reservation that nobody has used yet, readable and writable.
 * The pool owes them from then on, so that touching them cannot fail for want of one.
 * Returns 0; -ENOMEM when the pool has too few, or there is none, and the reservation is
 * as it was; -EEXIST when another mapping of the process has got into it meanwhile, and
 * nobody may use it any longer.
 */
int pin_os_commit_hugetlb(void *addr, size_t n_bytes);

/* Pages of 2 MiB in that pool that nobody has, nor is owed. */
size_t pin_os_hugetlb_free(void);

/*
 * Whether this is a virtual machine whose host is told of free memory, and takes it back (free
 * page reporting: virtio-balloon, Hyper-V).
 */
bool pin_os_host_reclaims(void);

/*
 * Makes [addr, addr + n_bytes) of a reservation readable and writable. Repeating
 * it on memory that is in use is harmless. Returns 0, or -ENOMEM when the commit
 * limit (vm.overcommit_memory=2) or RLIMIT_DATA is reached.
 */
int pin_os_commit(void *addr, size_t n_bytes);

/*
 * Bytes of address space RLIMIT_AS leaves to this process; SIZE_MAX without a
 * limit.
 */
size_t pin_os_address_space_left(void);

/* Bytes of writable private memory RLIMIT_DATA lets this process have; SIZE_MAX without one. */
size_t pin_os_data_limit(void);

/*
 * Bytes RLIMIT_MEMLOCK lets this process pin; SIZE_MAX without a limit, or with
 * CAP_IPC_LOCK, which ib_umem_get() heeds.
 */
size_t pin_os_memlock_limit(void);

/*
 * RLIMIT_MEMLOCK as it is set, whatever the process may; SIZE_MAX without a limit. One
 * system call, where the above may take six.
 */
size_t pin_os_memlock_set(void);

/*
 * A size of /proc/self/status, in bytes; 0 if it is not there. The name has the
 * newline before it and the colon: "\nVmPin:" is what the process has pinned, each
 * registration counted by itself.
 */
size_t pin_os_status(const char *name);

/* Bytes of memory the machine has. */
size_t pin_os_ram(void);

/* Processors this thread may run on. */
unsigned pin_os_processors(void);

/* Makes [addr, addr + n_bytes) resident, without a change for who uses it meanwhile. */
void pin_os_touch(void *addr, size_t n_bytes);

/* The memory node of the processor this thread is on, from 0. No system call. */
uint32_t pin_os_node(void);

/* Whether the machine has memory nodes to choose from. */
bool pin_os_has_nodes(void);

/*
 * Lets what this thread faults in come from a node, preferably, until
 * pin_os_prefer_none(). Returns false, with nothing changed, where the thread has a
 * policy already or the kernel permits none.
 */
bool pin_os_prefer_node(uint32_t node);
void pin_os_prefer_none(void);

/* Sleeps until *word is no longer `seen`, or a wake-up, or for no reason. */
void pin_os_wait(_Atomic uint32_t *word, uint32_t seen);

/* The same for so long at most; UINT64_MAX for ever. */
void pin_os_wait_ms(_Atomic uint32_t *word, uint32_t seen, uint64_t ms);

/* Wakes every thread in pin_os_wait() on this word, or one of them. */
void pin_os_wake(_Atomic uint32_t *word);
void pin_os_wake_one(_Atomic uint32_t *word);

/* Nanoseconds of a clock that never goes back. */
uint64_t pin_os_now_ns(void);

/* Sleeps that long, unless a signal comes. */
void pin_os_sleep_ms(uint64_t ms);

/* Waits until nobody is at work on the process's mappings who is now. */
void pin_os_await_mappings(void);

/* How many mappings the process may have (vm.max_map_count). */
size_t pin_os_most_mappings(void);

#endif
