/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PINALLOC_RESERVE: memory that the heap has, resident and registered, before the program
 * communicates for the first time.
 */
#ifndef PIN_PREFILL_H
#define PIN_PREFILL_H

#include "regpool/registry.h"

/*
 * Who makes free memory of so many bytes, in one piece: its address, or NULL. Once, from the
 * constructor.
 */
void pin_prefill_init(char *(*make)(size_t n_bytes));

/*
 * A class of a domain was armed: with the first one the memory is made and touched, by several
 * threads, on the memory node of this one, and with each it is registered. One line if there
 * is no room for it. Not from inside malloc.
 */
void pin_prefill(struct pin_domain *domain, struct pin_class *keys);

#endif
