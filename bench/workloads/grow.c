/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A work area that is freed and taken anew, a little larger each time, and one write a page:
 * what was freed is never large enough as it is. No random numbers.
 *   usage: grow SCALE BASE INCREMENT COUNT    COUNT blocks from BASE MiB * SCALE up
 */
#include "peak.h"

static size_t number(const char *text)
{
	char *end;
	size_t n = strtoul(text, &end, 10);

	return *text < '0' || *text > '9' || *end || n > MIB ? 0 : n;
}

int main(int argc, char **argv)
{
	size_t base, increment, count;

	if (argc != 5 || !parse_scale(argv[1]) || !(base = number(argv[2])) ||
	    !(increment = number(argv[3])) || !(count = number(argv[4])))
		usage("SCALE BASE INCREMENT COUNT");
	for (size_t i = 0; i < count; i++) {
		size_t n = scaled((double)((base + i * increment) * MIB));

		peak_free(peak_take_pages(n), n);
	}
	return peak_end();
}
