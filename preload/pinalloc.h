/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinalloc: a heap that is never given back and already registered.
 *
 * With libpinalloc.so in LD_PRELOAD a program needs none of this: malloc and
 * ibv_reg_mr just work. These functions are for a program that wants the keys of
 * heap memory without a registration of its own. They are declared weak, so that a
 * program built with this header also runs without the library: test a function
 * for NULL before calling it.
 *
 *     struct pinalloc_key key;
 *     if (pinalloc_lookup &&
 *         pinalloc_lookup(pd, buf, len, IBV_ACCESS_LOCAL_WRITE, &key) == 0)
 *             sge.lkey = key.lkey;
 *
 * All functions are thread-safe; none may be called from a signal handler except
 * where it says so. They leave errno alone, unless it says that they set it.
 *
 * This is version 1 of the interface, which the version of its symbols (PINALLOC_1)
 * says. What may change within a version: functions are added, struct pinalloc_stats
 * and struct pinalloc_pool_options get fields at their ends, and a function may return
 * an error number that is not listed here. What is here keeps its meaning; where that
 * must change, so does the version, and the symbols of the old one go.
 */
#ifndef PINALLOC_H
#define PINALLOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef PINALLOC_API
#define PINALLOC_API __attribute__((weak))
#endif

struct ibv_pd;

/* Keys as the adapter takes them, valid in the protection domain asked about. */
struct pinalloc_key {
	uint32_t lkey;
	uint32_t rkey;
	uint64_t start;	 /* address from which the keys reach `length` bytes, */
	uint64_t length; /* which are more than was asked about */
};

/*
 * Finds the keys of heap memory, from any thread, without a lock or a system call
 * once they are there; the first look-up in a protection domain, or of memory that is
 * not registered yet, registers. Keys stay valid until pinalloc_disable() or
 * ibv_dealloc_pd(). They open the whole memory region, not only the range asked about, and
 * have exactly the rights asked for.
 *
 *   pd      a protection domain of this process, not in a forked child
 *   addr    start of the range
 *   len     bytes
 *   access  IBV_ACCESS_* rights that the keys have; within PINALLOC_ACCESS, with
 *           IBV_ACCESS_RELAXED_ORDERING or without
 *   key     written only on success
 *
 * Returns 0; -ENOENT if not all of the range is heap memory, or the program has replaced
 * pages of it, or near it, behind malloc; -EACCES for rights beyond PINALLOC_ACCESS, or
 * beyond those that the protection domain was enabled with; -EINVAL for rights that verbs
 * do not allow together; -ENOMEM if it cannot be pinned, or registration is off
 * (PINALLOC_REGISTER, PINALLOC_PROGRAMS, fork protection, forked child, a protection
 * domain not allocated through ibv_alloc_pd as the linker finds it, PINALLOC_WATCH=strict
 * where the heap cannot be watched).
 */
int pinalloc_lookup(struct ibv_pd *pd, const void *addr, size_t len, unsigned access,
		    struct pinalloc_key *key) PINALLOC_API;

/*
 * Starts registering the heap in a protection domain: resident memory now, other memory
 * as it becomes resident.
 *
 *   pd      a protection domain of this process
 *   access  IBV_ACCESS_* rights of its memory regions, exactly; as for pinalloc_lookup().
 *           If nothing is registered there yet, no request and no look-up gets more than
 *           these from the heap's memory regions
 *
 * Returns 0; -EACCES for rights beyond PINALLOC_ACCESS; -EINVAL for rights that verbs do
 * not allow together; -EEXIST if it is enabled with fewer rights; -ENOMEM as for
 * pinalloc_lookup().
 */
int pinalloc_enable(struct ibv_pd *pd, unsigned access) PINALLOC_API;

/*
 * Gives up the keys handed out by pinalloc_lookup() in a protection domain and
 * deregisters the memory regions to which no ibv_mr held by the program refers.
 * ibv_dealloc_pd() does it too. Returns 0, or -ENOENT if nothing is registered there.
 */
int pinalloc_disable(struct ibv_pd *pd) PINALLOC_API;

/* Bytes unless it says otherwise. Fields are only ever added at the end. */
struct pinalloc_stats {
	uint64_t live;	       /* in blocks the program holds */
	uint64_t mapped;       /* the heap has grown to; never shrinks */
	uint64_t growth_steps; /* by which it grew, number */
	uint64_t pinned;       /* of it registered now, at most all of it */
	uint64_t pinned_peak;
	uint64_t mr_created; /* real registrations of heap memory, number */
	uint64_t mr_destroyed;
	uint64_t served;	  /* requests answered from them, number */
	uint64_t passed_through;  /* requests handed to libibverbs, number */
	uint64_t refused;	  /* registrations that failed, number */
	uint64_t evicted;	  /* memory regions deregistered to make room, number */
	uint64_t registration_ns; /* spent in real registrations of heap memory */
	uint64_t live_peak;	  /* the most that was live at a time */
	uint64_t registered;	  /* now, once for each memory region that has it */
	uint64_t registered_peak;
	uint64_t mr_ahead;	       /* of mr_created, those that no request waited for */
	uint64_t live_peak_since_mark; /* by pinalloc_mark(); before the first, live_peak */
};

/*
 * Takes the figures of this process.
 *
 *   stats  receives them
 *   size   sizeof *stats as the caller was built
 *
 * Returns the number of bytes filled in, which is less than size when the library
 * is older than the header.
 */
int pinalloc_stats(struct pinalloc_stats *stats, size_t size) PINALLOC_API;

/*
 * Begins a phase of the program, and ends the one that goes on: of each phase the report says
 * how much memory was in use at most, and what was registered. A phase that comes again adds
 * up. Takes a lock for a moment, so it must not be called by a handler that may have
 * interrupted it.
 *
 *   name  of the phase, in UTF-8, of which 47 bytes count; NULL or "": none begins
 *
 * Returns 0, or -ENOSPC, and a line says so the first time, if there are 64 names already: the
 * phases of all further names count as one.
 */
int pinalloc_mark(const char *name) PINALLOC_API;

/*
 * Writes the report now, as PINALLOC_REPORT does at exit.
 *
 *   path  "stderr", or a file name in which %h, %p and %r stand for the host, the
 *         process and the MPI rank; JSON if it ends in .json, else text
 *
 * Returns 0 or -errno.
 */
int pinalloc_report(const char *path) PINALLOC_API;

/*
 * Pools: memory of the heap that is made at once, touched by several threads, registered in
 * every protection domain the heap is, and handed out in slices. A second registrar, such as an
 * accelerator's or io_uring, is told of it first (on_segment). In a forked child of a process
 * that has made a pool, slices are memory as any, and the functions of pools fail with ENOTSUP.
 */
struct pinalloc_pool;

/* Zero is the default of all but `bytes`. Fields are only ever added at the end. */
struct pinalloc_pool_options {
	size_t bytes;	  /* the least that it has; more is made in whole pages */
	size_t page_size; /* PINALLOC_PAGES_*; 0: the heap's pages */
	unsigned threads; /* that touch it; they are gone when it is made */
	unsigned flags;	  /* PINALLOC_POOL_* */
	unsigned node;	  /* its memory node, with PINALLOC_POOL_ON_NODE */
	/*
	 * Called for each segment, the memory that the pool got at once: with is_added before
	 * slices of it are handed out, and without before it goes. Never with a lock held.
	 * Returns 0 or an error number, with which the function that wanted the memory then
	 * fails. Meanwhile no pool grows for this thread. May be NULL.
	 */
	int (*on_segment)(void *start, size_t length, int is_added, void *arg);
	void *arg;
};

/* 2 MiB: of hugetlbfs, else transparent huge pages; 1 GiB: of hugetlbfs, else as these. */
#define PINALLOC_PAGES_HUGE	((size_t)1 << 21)
#define PINALLOC_PAGES_GIGANTIC ((size_t)1 << 30)

#define PINALLOC_POOL_GROWS   1u /* when a slice needs it, by an eighth or more */
#define PINALLOC_POOL_ON_NODE 2u /* on memory node `node`, else on the caller's */

/*
 * Makes a pool.
 *
 *   options  what it is to be
 *   size     sizeof *options as the caller was built
 *
 * Returns NULL, and sets errno, if it cannot: EINVAL, for options that make no sense together
 * or that the library does not know; ENOMEM, for lack of memory or addresses; or what
 * on_segment returned. What may not be pinned is memory nevertheless: pinalloc_lookup() tells.
 */
struct pinalloc_pool *pinalloc_pool_create(const struct pinalloc_pool_options *options,
					   size_t size) PINALLOC_API;

/*
 * Takes a slice. What it holds is not defined.
 *
 *   size       bytes; what is taken is whole pages of 4 KiB
 *   alignment  a power of two, or 0 for 4 KiB, which is the least
 *
 * Returns NULL, and sets errno, if it cannot: EINVAL, for another alignment; EFBIG, if the
 * adapters known when the pool was made take less in one memory region; ENOMEM, if it is full
 * and does not grow, or cannot; or what on_segment returned.
 */
void *pinalloc_pool_alloc(struct pinalloc_pool *pool, size_t size,
			  size_t alignment) PINALLOC_API;

/*
 * Gives a slice back. Returns 0; -EINVAL, and a line says so the first time, if none begins
 * there, or none any more. NULL is nothing.
 */
int pinalloc_pool_free(struct pinalloc_pool *pool, void *slice) PINALLOC_API;

/*
 * Gives a pool's memory to malloc, still registered. No other thread may be using the pool.
 * Returns 0; -EBUSY, and the pool stays, if there are slices in use. NULL is nothing.
 */
int pinalloc_pool_destroy(struct pinalloc_pool *pool) PINALLOC_API;

#ifdef __cplusplus
}
#endif

#endif
