/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dense ROUNDS MIB SIZE MIB SIZE USED: in each round blocks of the first SIZE, MIB in all,
 * which are written, and then blocks of the second SIZE, of which the first USED bytes are. Or
 * dense 0 MIB FACTOR_PERCENT: a block that realloc makes longer by this factor until it has
 * MIB, all written. Prints the most that was resident, the huge pages that are (KiB), and page
 * faults.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

static size_t kib(const char *file, const char *key)
{
	FILE *f = fopen(file, "r");
	char line[256];
	size_t n = 0;

	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, key, strlen(key)))
			n = strtoul(line + strlen(key), NULL, 10);
	return n;
}

static void take(size_t n_bytes, size_t size, size_t n_written)
{
	for (size_t n = 0; n < n_bytes; n += size)
		memset(malloc(size), 1, n_written < size ? n_written : size);
}

static void grow(size_t most, size_t percent)
{
	size_t had = 0;
	char *p = NULL;

	for (size_t n = MIB; n <= most; n = n * percent / 100) {
		p = realloc(p, n);
		memset(p + had, 1, n - had);
		had = n;
	}
}

int main(int argc, char **argv)
{
	struct rusage usage;
	size_t n[6] = {0};

	for (int i = 1; i < argc && i <= 6; i++)
		n[i - 1] = strtoul(argv[i], NULL, 10);
	for (size_t round = 0; round < n[0]; round++) {
		take(n[1] * MIB, n[2], n[2]);
		take(n[3] * MIB, n[4], n[5]);
	}
	if (!n[0])
		grow(n[1] * MIB, n[2]);
	getrusage(RUSAGE_SELF, &usage);
	printf("%zu %zu %ld\n", kib("/proc/self/status", "VmHWM:"),
	       kib("/proc/self/smaps_rollup", "AnonHugePages:"), usage.ru_minflt);
	return 0;
}
