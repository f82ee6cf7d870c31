/* SPDX-License-Identifier: BSD-2-Clause */
#include <config.h>

#include "allocator/math.h"

#include <string.h>

#define LN_2 0.693147180559945309417

/* 2 to the power of `exponent`, from -1022 to 1023. */
static double power_of_two(int64_t exponent)
{
	uint64_t bits = (uint64_t)(exponent + 1023) << 52;
	double x;

	memcpy(&x, &bits, sizeof x);
	return x;
}

/* Taylor's series, once whole powers of two have been divided out. */
double pin_exp(double x)
{
	double rest, term = 1, sum = 1;
	int64_t whole;

	if (x < -700)
		return 0;
	whole = (int64_t)(x / LN_2);
	rest = x - (double)whole * LN_2;
	for (int n = 1; n < 20; n++)
		sum += term *= rest / n;
	return sum * power_of_two(whole);
}

/*
 * The series of 2 artanh((x - 1) / (x + 1)), once whole powers of two have been divided out.
 */
double pin_log(double x)
{
	double ratio, term, sum = 0;
	uint64_t bits;
	int64_t whole;

	memcpy(&bits, &x, sizeof bits);
	whole = (int64_t)(bits >> 52) - 1023;
	x *= power_of_two(-whole);
	if (x > 1.5) {
		x /= 2;
		whole++;
	}
	ratio = (x - 1) / (x + 1);
	term = 2 * ratio;
	for (int n = 1; n < 40; n += 2, term *= ratio * ratio)
		sum += term / n;
	return sum + (double)whole * LN_2;
}

double pin_round(double x)
{
	return (double)(int64_t)(x < 0 ? x - 0.5 : x + 0.5);
}
