/* SPDX-License-Identifier: BSD-2-Clause */
/* What pairs.c measures: one way to register and deregister memory. */
#ifndef PAIRS_H
#define PAIRS_H

#include <stddef.h>

void pairs_open(void);
void pairs_once(void *buffer, size_t n_bytes);

#endif
