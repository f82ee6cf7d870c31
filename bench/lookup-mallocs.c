/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * malloc() and free() again and again, for an instruction counter. Built with
 * -fno-builtin: the compiler must not know what malloc does, or it leaves calls out.
 *   usage: lookup-mallocs BYTES[/ALIGNMENT] PAIRS
 */
#include <malloc.h>
#include <stdlib.h>

/* noipa: the instruction counter finds the function by its name. */
__attribute__((noipa)) static int count(size_t n_bytes, size_t alignment, size_t pairs)
{
	while (pairs--) {
		char *p = alignment ? memalign(alignment, n_bytes) : malloc(n_bytes);

		if (!p)
			return 1;
		*p = 1;
		free(p);
	}
	return 0;
}

int main(int argc, char **argv)
{
	char *end;
	size_t n_bytes;

	if (argc < 3)
		return 2;
	n_bytes = strtoul(argv[1], &end, 10);
	return count(n_bytes, *end ? strtoul(end + 1, NULL, 10) : 0,
		     strtoul(argv[2], NULL, 10));
}
