#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: the library reaches every shell and every short program of a job, so their start
# must not cost much: few system calls, no files to look into, little memory to touch.

setup() {
	load helper
}

# calls [NAME=VALUE…]: the system calls of a program that does nothing, one a line. Its
# limit on locked memory is one of those a system comes with.
calls() {
	local environment=() name
	for name in "$@"; do
		environment+=(-E "$name")
	done
	(ulimit -l 64 && strace "${environment[@]}" -o "$BATS_TEST_TMPDIR/calls" true)
	cat "$BATS_TEST_TMPDIR/calls"
}

# opened [NAME=VALUE…]: the files it opens.
opened() {
	calls "$@" | sed -n 's/^open.*"\(.*\)".*/\1/p'
}

# Which says what it need not call.
@test "the start of a program opens no file but the library and /proc/self/status" {
	local without with ours=(-e "$library" -e /proc/self/status)
	without=$(opened)
	with=$(opened LD_PRELOAD="$library")
	echo "without $without, with $with"
	[ "$(grep -cxF "${ours[@]}" <<< "$with")" -eq 2 ]
	[ "$(grep -vxF "${ours[@]}" <<< "$with")" = "$without" ]
}

@test "the start of a program takes no more than 26 system calls more" {
	local without with
	without=$(calls | wc -l)
	with=$(calls LD_PRELOAD="$library" | wc -l)
	echo "without $without, with $with"
	[ "$without" -ge 10 ]
	[ "$with" -gt "$without" ]
	[ "$with" -le $((without + 26)) ]
}

# faults [NAME=VALUE…]: how often it touches a page that has to be found or read in first.
faults() {
	python3 - "$@" << 'END'
import os, sys
child = os.posix_spawnp("true", ["true"], dict(v.split("=", 1) for v in ["LC_ALL=C", *sys.argv[1:]]))
_, status, used = os.wait4(child, 0)
print(used.ru_minflt + used.ru_majflt)
sys.exit(status != 0)
END
}

@test "the start of a program touches no more than 70 pages more" {
	local without with
	without=$(faults)
	with=$(faults LD_PRELOAD="$library")
	echo "without $without, with $with"
	[ "$without" -ge 10 ]
	[ "$with" -gt "$without" ]
	[ "$with" -le $((without + 70)) ]
}

# What plain programs do not call, they need not be allowed.
unusual="userfaultfd capget set_mempolicy get_mempolicy mbind perf_event_open process_vm_readv
	memfd_create getrandom prctl madvise sched_getaffinity"

@test "a filter may kill whatever makes an unusual system call: programs start, allocate and end" {
	local name threads
	for name in $unusual; do
		for threads in 0 4; do
			run -0 env LIBRARY="$library" "$programs/filtered" $name KILL \
				"$programs/filtered" none KILL allocates $threads
			[ "$output" = works ]
		done
	done
	run env LIBRARY="$library" "$programs/filtered" exit_group KILL true
	[ "$status" -eq 159 ]
}

@test "where such calls fail, programs start without a word" {
	local name
	for name in $unusual; do
		run -0 --separate-stderr env LIBRARY="$library" "$programs/filtered" $name EPERM ls /
		[ -n "$output" ]
		[ -z "$stderr" ]
	done
}

@test "a process that forbids itself such calls allocates as before, alone or in threads" {
	local name threads
	for name in $unusual; do
		for threads in 0 4; do
			run -0 preloaded "$programs/filtered" $name KILL allocates $threads
			[ "$output" = works ]
		done
	done
}
