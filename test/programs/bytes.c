/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bytes: fills memory with 1, frees it and allocates it again; prints a byte of it from malloc
 * and from calloc, in hexadecimal, for a small and a large block.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void look(size_t size)
{
	unsigned char *p = malloc(size);
	unsigned from_malloc;

	memset(p, 1, size);
	free(p);
	p = malloc(size);
	from_malloc = p[size / 2];
	memset(p, 1, size);
	free(p);
	p = calloc(1, size);
	printf("%02x %02x\n", from_malloc, p[size / 2]);
	free(p);
}

int main(void)
{
	look(1000);
	look(3000000);
	return 0;
}
