/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Factorising, with numbers of any length that are never changed but made anew: each step of
 * the continued fraction for the square root of a number of 44 digits allocates some thirty
 * of up to 32 bytes and frees most of them at once. What of its denominators has small
 * factors only, but for one, is kept. The number is that of cfrac (D. Barrett) as the field
 * runs it; the equations of the end, which allocate next to nothing, are left out.
 *   usage: cfrac SCALE
 */
#include "numbers.h"

#define NUMBER	   "17545186520507317056371138836327483792789528"
#define ROOT	   "4188697473022767379191"
#define REST	   "2271514086257012975047" /* of the number, without the square of that */
#define OPERATIONS 2e6			    /* steps */
#define PRIMES	   200
#define EARLY	   20 /* after so many primes most are given up */

/* Of what is kept. */
struct relation {
	struct relation *next;
	struct number *square_of, *rest;
	unsigned char *odd; /* for each prime, whether it is there an odd number of times */
};

static struct relation *relations;
static uint32_t primes[PRIMES];
static size_t n_relations;

static uint32_t power(uint64_t base, uint32_t exponent, uint32_t modulus)
{
	uint64_t result = 1;

	for (base %= modulus; exponent; exponent /= 2, base = base * base % modulus)
		if (exponent % 2)
			result = result * base % modulus;
	return (uint32_t)result;
}

static bool is_prime(uint32_t p)
{
	for (uint32_t i = 2; i * i <= p; i++)
		if (p % i == 0)
			return false;
	return true;
}

/* Others divide no denominator. */
static void choose_primes(const struct number *number)
{
	size_t n = 0;

	primes[n++] = 2;
	for (uint32_t p = 3; n < PRIMES; p += 2)
		if (is_prime(p) && power(divide_by(number, p, NULL), (p - 1) / 2, p) <= 1)
			primes[n++] = p;
}

/* What is left of it, or NULL when that is too much. */
static struct number *take_factors(const struct number *number, unsigned char *odd)
{
	struct number *rest = copy(number), *quotient;

	memset(odd, 0, PRIMES);
	for (size_t i = 0; i < PRIMES; i++) {
		for (; !divide_by(rest, primes[i], NULL); odd[i] ^= 1) {
			quotient = make(rest->n);
			divide_by(rest, primes[i], quotient);
			set(&rest, trim(quotient));
		}
		if (i == EARLY && rest->n > 2)
			break;
	}
	if (rest->n > 1)
		set(&rest, NULL);
	return rest;
}

static void keep(const struct number *square_of, struct number *rest, const unsigned char *odd)
{
	struct relation *relation = need(malloc(sizeof *relation));

	*relation = (struct relation){relations, copy(square_of), rest, need(malloc(PRIMES))};
	memcpy(relation->odd, odd, PRIMES);
	relations = relation;
	n_relations++;
}

/* After Morrison and Brillhart. */
static void expand(const struct number *number, size_t n_steps)
{
	struct number *root = read_number(ROOT), *twice = multiply_add(root, 2, &zero),
		      *u = copy(twice), *last_u = copy(twice), *a = read_number("1"),
		      *last_a = root, *q = read_number("1"), *last_q = read_number(REST);
	struct number *next, *rest;
	unsigned char odd[PRIMES];
	uint32_t quotient = 0;

	while (n_steps--) {
		next = multiply_add(a, quotient, last_a);
		divide(&next, number);
		set(&last_a, a);
		a = next;
		if (compare(last_u, u) >= 0) {
			rest = subtract(last_u, u);
			next = multiply_add(rest, quotient, last_q);
		} else {
			rest = subtract(u, last_u);
			set(&rest, multiply_add(rest, quotient, &zero));
			next = subtract(last_q, rest);
		}
		free(rest);
		set(&last_q, q);
		q = next;
		set(&last_u, copy(u));
		quotient = divide(&u, q);
		set(&u, subtract(twice, u));
		rest = take_factors(q, odd);
		if (rest)
			keep(a, rest, odd);
	}
}

int main(int argc, char **argv)
{
	struct number *number = read_number(NUMBER);
	size_t n;

	workload_single(argc, argv);
	n = scaled(OPERATIONS);
	choose_primes(number);
	expand(number, n);
	print("relations", n_relations);
	return workload_end(n);
}
