/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * grow COUNT [SIZE]: holds COUNT blocks of SIZE bytes, 1 MiB when not said, whose
 * memory it does not touch.
 */
#include <stdlib.h>

int main(int argc, char **argv)
{
	size_t count = argc > 1 ? strtoul(argv[1], NULL, 0) : 0;
	size_t size = argc > 2 ? strtoul(argv[2], NULL, 0) : (size_t)1 << 20;

	while (count--)
		if (!malloc(size))
			return 1;
	return 0;
}
