#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: whichever system call fails, the program continues as without the library, is refused
# memory, or gets one clear message. (A selection; `test/faults` does all.)
load helper

# bears PROGRAM: runs the selection for one program; each kind of fault must occur.
bears() {
	run "$top_srcdir/test/faults" --quick --program "$1"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -ge 3 ]
	awk 'NR > 1 && $3 < 2 { exit 1 }' <<< "$output"
}

@test "faults in a C program with threads, a child and exec are survived or reported" {
	bears threads
}

@test "faults in a shell and its commands are survived or reported" {
	bears bash
}

@test "faults in python3 are survived or reported" {
	bears python
}

@test "faults in two threads that register growing heap and replaced mappings are survived or reported" {
	bears rdma
}

@test "these tests notice a library that does not survive faults" {
	mkdir -p "$BATS_TEST_TMPDIR/build/.libs"
	ln -s "$top_builddir"/{config.h,test} "$BATS_TEST_TMPDIR/build"
	gcc -shared -fPIC -o "$BATS_TEST_TMPDIR/build/.libs/libpinalloc.so" -x c - <<- 'END'
		#include <sys/prctl.h>
		#include <sys/mman.h>
		__attribute__((constructor)) static void start(void)
		{
			char *page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			mprotect(page, 4096, PROT_READ | PROT_WRITE);
			*page = 1;
		}
	END
	top_builddir=$BATS_TEST_TMPDIR/build run -1 "$top_srcdir/test/faults" \
		--program threads --kind mprotect
	[[ "$output" == *"WRONG status 139"* ]]
}
