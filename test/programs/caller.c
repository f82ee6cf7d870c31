/* SPDX-License-Identifier: BSD-2-Clause */
/* caller NAME: prints the file whose function a program calls by this name. */
#include <config.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	void *code = argc == 2 ? dlsym(RTLD_DEFAULT, argv[1]) : NULL;
	const char *slash;
	Dl_info info;

	if (!code || !dladdr(code, &info))
		return 1;
	slash = strrchr(info.dli_fname, '/');
	puts(slash ? slash + 1 : info.dli_fname);
	return 0;
}
