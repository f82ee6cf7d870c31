/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whole numbers of any length, none below 0, each in a block of its own that is never changed:
 * what is computed is a new one.
 */
#ifndef NUMBERS_H
#define NUMBERS_H

#include "workload.h"

/* The lowest digit is the first; 0 has none. */
struct number {
	uint32_t n, unused;
	uint32_t digits[];
};

static const struct number zero;

static inline struct number *make(size_t n)
{
	struct number *a = need(malloc(sizeof *a + n * sizeof *a->digits));

	a->n = (uint32_t)n;
	return a;
}

static inline void set(struct number **to, struct number *a)
{
	free(*to);
	*to = a;
}

static inline uint32_t digit(const struct number *a, size_t i)
{
	return i < a->n ? a->digits[i] : 0;
}

static inline struct number *trim(struct number *a)
{
	while (a->n && !a->digits[a->n - 1])
		a->n--;
	return a;
}

static inline struct number *copy(const struct number *a)
{
	struct number *b = make(a->n);

	memcpy(b->digits, a->digits, a->n * sizeof *a->digits);
	return b;
}

/* a * by + b */
static inline struct number *multiply_add(const struct number *a, uint32_t by,
					  const struct number *b)
{
	size_t n = (a->n > b->n ? a->n : b->n) + 1;
	struct number *sum = make(n);
	uint64_t carry = 0;

	for (size_t i = 0; i < n; i++) {
		carry += (uint64_t)digit(a, i) * by + digit(b, i);
		sum->digits[i] = (uint32_t)carry;
		carry >>= 32;
	}
	return trim(sum);
}

/* a is no less. */
static inline struct number *subtract(const struct number *a, const struct number *b)
{
	struct number *difference = make(a->n);
	int64_t borrow = 0;

	for (size_t i = 0; i < a->n; i++) {
		borrow += (int64_t)a->digits[i] - digit(b, i);
		difference->digits[i] = (uint32_t)borrow;
		borrow >>= 32;
	}
	return trim(difference);
}

static inline int compare(const struct number *a, const struct number *b)
{
	if (a->n != b->n)
		return a->n < b->n ? -1 : 1;
	for (size_t i = a->n; i--;)
		if (a->digits[i] != b->digits[i])
			return a->digits[i] < b->digits[i] ? -1 : 1;
	return 0;
}

/* The quotient; *a becomes the remainder. It is small in a continued fraction, mostly 1. */
static inline uint32_t divide(struct number **a, const struct number *by)
{
	struct number *part = NULL;
	uint32_t quotient = 0;

	while (compare(*a, by) >= 0) {
		uint32_t times = 1;

		set(&part, multiply_add(by, 2, &zero));
		for (; compare(*a, part) >= 0 && times < 1u << 30; times *= 2)
			set(&part, multiply_add(by, 4 * times, &zero));
		set(&part, multiply_add(by, times, &zero));
		set(a, subtract(*a, part));
		quotient += times;
	}
	free(part);
	return quotient;
}

static inline uint32_t divide_by(const struct number *a, uint32_t by, struct number *quotient)
{
	uint64_t rest = 0;

	for (size_t i = a->n; i--;) {
		rest = rest << 32 | a->digits[i];
		if (quotient)
			quotient->digits[i] = (uint32_t)(rest / by);
		rest %= by;
	}
	return (uint32_t)rest;
}

static inline struct number *read_number(const char *text)
{
	struct number *a = make(0), *next;

	for (; *text; text++) {
		next = make(1);
		next->digits[0] = (uint32_t)(*text - '0');
		set(&next, multiply_add(a, 10, trim(next)));
		set(&a, next);
	}
	return a;
}

#endif
