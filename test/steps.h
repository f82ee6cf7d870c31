/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Included first where the files of unit-races are compiled: before each step that other
 * threads may see, the test can run another one.
 */
#ifndef STEPS_H
#define STEPS_H

#include <config.h>

#include <pthread.h>
#include <stdatomic.h>

void before_step(void);

/* In unit-scale: before each access to an element of a table that is as large as an entry. */
void look_at_entry(void);
#ifdef COUNT_LOOKS
#include "allocator/reserve.h"
#undef pin_table_at
#define pin_table_at(table, type, i)                                             \
	((sizeof(type) == 32 || sizeof(type) > 128 ? look_at_entry() : (void)0), \
	 (type *)(void *)(table)->base + (i))
#endif

#include "allocator/mutex.h"

/* Take a lock, which is a step. */
void step_lock(struct pin_mutex *lock);
int step_wrlock(pthread_rwlock_t *lock);
int step_rdlock(pthread_rwlock_t *lock);

#undef atomic_load
#define atomic_load(p) (before_step(), atomic_load_explicit(p, memory_order_seq_cst))
#undef atomic_store
#define atomic_store(p, value) \
	(before_step(), atomic_store_explicit(p, value, memory_order_seq_cst))
#undef atomic_fetch_add
#define atomic_fetch_add(p, n) \
	(before_step(), atomic_fetch_add_explicit(p, n, memory_order_seq_cst))
#undef atomic_fetch_sub
#define atomic_fetch_sub(p, n) \
	(before_step(), atomic_fetch_sub_explicit(p, n, memory_order_seq_cst))
#undef atomic_compare_exchange_strong
#define atomic_compare_exchange_strong(p, old, value)            \
	(before_step(), atomic_compare_exchange_strong_explicit( \
				p, old, value, memory_order_seq_cst, memory_order_seq_cst))
#undef atomic_compare_exchange_weak
#define atomic_compare_exchange_weak(p, old, value)            \
	(before_step(), atomic_compare_exchange_weak_explicit( \
				p, old, value, memory_order_seq_cst, memory_order_seq_cst))

#define pin_mutex_lock	      step_lock
#define pthread_rwlock_wrlock step_wrlock
#define pthread_rwlock_rdlock step_rdlock

#endif
