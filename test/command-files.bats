#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: whatever files are among a job's reports, and whatever they contain, `pinalloc report`
# prints one line for each that is not a report, and reports the others.
load helper
load job

@test "what is no report costs a line, and the others are reported; names do no harm" {
	transcript files
}

@test "a module that a stack names may be anything, and have changed" {
	transcript modules
}

@test "a record that a report replaces while the directory is read is not lost" {
	rank late.json '.nranks = 1'
	mkdir job
	: > job/0.json.node1.100.running
	gcc -shared -fPIC -o late.so -x c - <<- 'END'
		#define _GNU_SOURCE
		#include <dirent.h>
		#include <dlfcn.h>
		#include <stdio.h>
		#include <unistd.h>

		int scandir(const char *path, struct dirent ***entries, int (*is_wanted)(const struct dirent *),
			    int (*compare)(const struct dirent **, const struct dirent **))
		{
			int (*next)(const char *, struct dirent ***, int (*)(const struct dirent *),
				    int (*)(const struct dirent **, const struct dirent **)) = dlsym(RTLD_NEXT, "scandir");
			int n = next(path, entries, is_wanted, compare);

			rename("late.json", "job/0.json");
			unlink("job/0.json.node1.100.running");
			return n;
		}
	END
	made
	run -0 --separate-stderr env LD_PRELOAD="$PWD/late.so" "$pinalloc" report job
	[ -z "$stderr" ]
	[ "${lines[0]}" = "pinalloc: app, 1 rank on 1 host, 6.5 s" ]
}
