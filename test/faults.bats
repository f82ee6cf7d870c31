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
