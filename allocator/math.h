/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The functions of libm that sampling needs. Every process would have to load and relocate
 * libm for these alone. jemalloc's calls of them come here too (Makefile.am).
 */
#ifndef PIN_MATH_H
#define PIN_MATH_H

#include "allocator/base.h"

/* e to the power of x, for x up to 700, accurate to 14 digits. */
double pin_exp(double x);

/* The natural logarithm of a normal positive number, accurate to 14 digits. */
double pin_log(double x);

/* x rounded to the nearest whole number, for absolute values up to 2 to the power of 62. */
double pin_round(double x);

#endif
