#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: the library is loaded into every shell and every short program of a job, so starting must
# not cost much: few system calls, no files to read, few pages to touch, and no thread where there is no RDMA.
load helper

setup() {
	program=(true)
}

# calls [NAME=VALUE…]: the system calls of a program, one in a line. `true` does nothing, not even
# allocate. Its limit on locked memory is one that systems set by default.
calls() {
	local environment=() name
	for name in "$@"; do
		environment+=(-E "$name")
	done
	(ulimit -l 64 && strace "${environment[@]}" -o "$BATS_TEST_TMPDIR/calls" "${program[@]}" > "$BATS_TEST_TMPDIR/out")
	cat "$BATS_TEST_TMPDIR/calls"
}

# opened [NAME=VALUE…]: the files it opens.
opened() {
	calls "$@" | sed -n 's/^open.*"\(.*\)".*/\1/p'
}

@test "starting a program opens no file but the library, nor does the first malloc" {
	local without with name
	for name in true 'ls /'; do
		read -ra program <<< "$name"
		without=$(opened)
		with=$(opened LD_PRELOAD="$library")
		echo "$name: without $without, with $with"
		[ "$(grep -cxF "$library" <<< "$with")" -eq 1 ]
		[ "$(grep -vxF "$library" <<< "$with")" = "$without" ]
	done
}

# The heap begins with the first malloc: a reserve of terabytes, and jemalloc's own memory.
@test "a program that allocates nothing has no heap" {
	local reserve='^mmap(NULL, [0-9]\{11,\}, PROT_NONE'
	[ "$(calls LD_PRELOAD="$library" | grep -c "$reserve")" -eq 0 ]
	program=(ls /)
	[ "$(calls LD_PRELOAD="$library" | grep -c "$reserve")" -eq 1 ]
}

# Of gcc and ld 10; lld makes a segment more. A file that is read, or a thread, takes four.
@test "starting a program takes few more system calls" {
	local without with
	without=$(calls | wc -l)
	with=$(calls LD_PRELOAD="$library" | wc -l)
	echo "without $without, with $with"
	[ "$without" -ge 10 ]
	[ "$with" -gt "$without" ]
	[ "$with" -le $((without + 14)) ]
}

# faults [NAME=VALUE…]: the number of its page faults.
faults() {
	python3 - "$@" << 'END'
import os, sys
child = os.posix_spawnp("true", ["true"], dict(v.split("=", 1) for v in ["LC_ALL=C", *sys.argv[1:]]))
_, status, used = os.wait4(child, 0)
print(used.ru_minflt + used.ru_majflt)
sys.exit(status != 0)
END
}

# Of gcc and ld about 27; other linkers lay it out otherwise, which takes some pages more.
@test "starting a program touches few more pages" {
	local without with
	without=$(faults)
	with=$(faults LD_PRELOAD="$library")
	echo "without $without, with $with"
	[ "$without" -ge 10 ]
	[ "$with" -gt "$without" ]
	[ "$with" -le $((without + 40)) ]
}

@test "a program without RDMA gets no thread" {
	run -0 preloaded bash -c 'tasks=(/proc/$$/task/*); echo ${#tasks[@]}'
	[ "$output" -eq 1 ]
	run -0 env LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=background_thread:true \
		bash -c 'tasks=(/proc/$$/task/*); echo ${#tasks[@]}'
	[ "$output" -gt 1 ]
	run -0 preloaded MALLOC_CONF=background_thread:true \
		bash -c 'tasks=(/proc/$$/task/*); echo ${#tasks[@]}'
	[ "$output" -eq 1 ]
}

# System calls that plain programs do not make may be forbidden.
unusual="userfaultfd capget set_mempolicy get_mempolicy mbind perf_event_open process_vm_readv
	memfd_create getrandom prctl"

@test "programs start, allocate and end under a filter that kills on unusual calls, begun before or since" {
	local name threads
	for name in $unusual; do
		for threads in 0 4; do
			run -0 preloaded "$programs/filtered" $name KILL allocates $threads
			[ "$output" = works ]
			# glibc 2.43 asks for random bytes by itself.
			[ $name != getrandom ] || "$programs/filtered" $name KILL true || continue
			run -0 env LIBRARY="$library" "$programs/filtered" $name KILL \
				"$programs/filtered" none KILL allocates $threads
			[ "$output" = works ]
		done
	done
	run env LIBRARY="$library" "$programs/filtered" exit_group KILL true
	[ "$status" -eq 159 ]
}

@test "if such calls fail, programs start silently" {
	local name
	# Of addresses there is more than memory.
	ulimit -v $((8 << 30))
	for name in $unusual madvise; do
		run -0 --separate-stderr env LIBRARY="$library" "$programs/filtered" $name EPERM ls /
		[ -n "$output" ]
		[ -z "$stderr" ]
	done
	# As for eight processors.
	run -0 env LIBRARY="$library" "$programs/filtered" sched_getaffinity EPERM "$programs/ctl" opt.narenas
	[ "$output" = 32 ]
}
