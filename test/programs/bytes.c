/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * bytes: fills memory with 1, frees it and allocates it again; prints a byte of it when
 * it is free, from malloc and from calloc, in hexadecimal, for a small and a large block.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void look(size_t size)
{
	/* Volatile, or the compiler would warn of what is looked at here on purpose. */
	unsigned char *volatile p = malloc(size);
	unsigned freed, from_malloc;

	memset(p, 1, size);
	free(p);
	freed = p[size / 2];
	p = malloc(size);
	from_malloc = p[size / 2];
	memset(p, 1, size);
	free(p);
	p = calloc(1, size);
	printf("%02x %02x %02x\n", freed, from_malloc, p[size / 2]);
	free(p);
}

int main(void)
{
	look(1000);
	look(3000000);
	return 0;
}
