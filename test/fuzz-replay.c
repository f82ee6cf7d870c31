/* SPDX-License-Identifier: BSD-2-Clause */
/* Tries the texts that are kept in test/fuzz-seeds: what fuzzing starts from and what it found.
 */
#include "test/fuzz-target.h"
#include "test/tap.h"

#include <dirent.h>
#include <limits.h>
#include <string.h>

static char directory[PATH_MAX];

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static bool replay(const char *name)
{
	static uint8_t text[1 << 20];
	char path[2 * PATH_MAX];
	FILE *in;
	size_t n;

	snprintf(path, sizeof path, "%s/%s", directory, name);
	in = fopen(path, "re");
	if (!in)
		return false;
	n = fread(text, 1, sizeof text, in);
	fclose(in);
	return n < sizeof text && !LLVMFuzzerTestOneInput(text, n);
}

int main(int argc, char **argv)
{
	const char *top = getenv("top_srcdir"), *name = strrchr(argv[0], '-');
	struct dirent **entries;
	int n;

	(void)argc;
	snprintf(directory, sizeof directory, "%s/test/fuzz-seeds/%s", top ? top : ".",
		 name + 1);
	n = scandir(directory, &entries, is_visible, alphasort);
	ok(n > 0, "%s has texts", directory);
	for (int i = 0; i < n; i++) {
		ok(replay(entries[i]->d_name), "%s", entries[i]->d_name);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return done_testing();
}
