/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * host LIBRARY: a C program, without libstdc++, that loads a C++ library with RTLD_LOCAL and
 * calls its attempt().
 */
#include <config.h>

#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	const char *(*attempt)(void);

	if (dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv"))
		return 2; /* libstdc++ was not to be there */
	attempt = library ? (const char *(*)(void))dlsym(library, "attempt") : NULL;
	if (!attempt)
		return 3;
	puts(attempt());
	return 0;
}
