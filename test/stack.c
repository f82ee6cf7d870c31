/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints the stack when a module calls back, one frame name in a line.
 *	usage: stack [-l] [MODULE.so]	-l: with lines; without a module it calls itself
 */
#include <config.h>

#include "preload/report/backtrace.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static bool lines;

static void print(void)
{
	char name[PIN_BACKTRACE_NAME];
	void *frames[32];
	int n = pin_backtrace_walk(frames, 32);

	for (int i = 0; i < n; i++) {
		pin_backtrace_name(frames[i], lines, name, sizeof name);
		puts(name);
	}
	pin_backtrace_done();
}

static __attribute__((noinline)) void itself(void (*callback)(void))
{
	callback();
}

int main(int argc, char **argv)
{
	void (*start)(void (*)(void)) = itself;
	void *module;

	lines = argc > 1 && !strcmp(argv[1], "-l");
	if (argc > 1 + lines) {
		module = dlopen(argv[1 + lines], RTLD_NOW);
		start = module ? (__typeof__(start))dlsym(module, "start") : NULL;
	}
	if (!start)
		return fprintf(stderr, "stack: %s\n", dlerror()) && 1;
	start(print);
	return 0;
}
