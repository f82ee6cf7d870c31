/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * grow COUNT [SIZE [THEN]]: allocates COUNT blocks of SIZE bytes, by default 1 MiB, without
 * touching them; then frees the last one and allocates THEN bytes.
 */
#include <stdlib.h>

int main(int argc, char **argv)
{
	size_t count = argc > 1 ? strtoul(argv[1], NULL, 0) : 0;
	size_t size = argc > 2 ? strtoul(argv[2], NULL, 0) : (size_t)1 << 20;
	void *p = NULL;

	while (count--)
		if (!(p = malloc(size)))
			return 1;
	if (argc > 3) {
		free(p);
		p = malloc(strtoul(argv[3], NULL, 0));
	}
	return argc > 3 && !p;
}
