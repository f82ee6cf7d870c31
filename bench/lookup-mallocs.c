/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * malloc() and free() again and again, for an instruction counter. Built with
 * -fno-builtin: the compiler must not know what malloc does, or it leaves calls out.
 *   usage: lookup-mallocs BYTES PAIRS
 */
#include <stdlib.h>

/* noipa: the instruction counter finds the function by its name. */
__attribute__((noipa)) static int count(size_t n_bytes, size_t pairs)
{
	while (pairs--) {
		char *p = malloc(n_bytes);

		if (!p)
			return 1;
		*p = 1;
		free(p);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	return count(strtoul(argv[1], NULL, 10), strtoul(argv[2], NULL, 10));
}
