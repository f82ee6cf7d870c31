/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program with its own malloc, like programs that link an allocator statically. Prints
 * "works".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(16) char pool[1 << 24];
static size_t used;

void *malloc(size_t size)
{
	void *p = pool + used;

	used += (size + 15) & ~(size_t)15;
	return used <= sizeof pool ? p : NULL;
}

void free(void *p)
{
}

void *calloc(size_t n, size_t size)
{
	return malloc(n * size);
}

/* Memory behind the old block is in the pool, too. */
void *realloc(void *old, size_t size)
{
	void *p = malloc(size);

	if (p && old)
		memmove(p, old, size);
	return p;
}

int main(void)
{
	char *text = malloc(6);

	memcpy(text, "works", 6);
	puts(text);
	free(text);
	return 0;
}
