#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: whichever system call fails, the program goes on as without the library, is refused
# memory, or gets one clear message. (A selection; `test/faults` does all.)

setup() {
	load helper
}

# bears PROGRAM: the selection of one program; each kind of fault is met.
bears() {
	run "$top_srcdir/test/faults" --quick --program "$1"
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${#lines[@]}" -ge 3 ]
	awk 'NR > 1 && $3 < 2 { exit 1 }' <<< "$output"
}

@test "threads of C, a child and another program" {
	bears threads
}

@test "objects and exceptions of C++" {
	bears objects
}

@test "a shell and what it runs" {
	bears bash
}

@test "python3" {
	bears python
}

@test "registrations in two threads, of a heap that grows and of mappings that are replaced" {
	bears rdma
}

@test "a library that does not bear a fault would be noticed" {
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
