/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions of libm's, for what samples stand for: nothing else here needs that library,
 * which every process would load, relocate and fault in at its start.
 * jemalloc's calls of them come here too (Makefile.am).
 */
#ifndef PIN_MATH_H
#define PIN_MATH_H

#include "allocator/base.h"

/* To the power of x, up to 700; as good as a double to 14 digits. */
double pin_exp(double x);

/* Of a normal positive number. The same. */
double pin_log(double x);

/* To the nearest whole number, up to 2 to the power of 62. */
double pin_round(double x);

#endif
