#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: if the kernel does not overcommit memory, programs start and register, reserved
# addresses do not count, and allocations that do not fit are refused at once. In a separate
# machine: a refused request counts until it is refused, so for a moment no other process could
# fork.

setup_file() {
	load ../helper
	load lab
	boot
}

in_guest() {
	local policy=/proc/sys/vm/overcommit_memory limit

	limit=$(($(awk '/^CommitLimit:/ { print $2 }' /proc/meminfo) * 1024))
	echo 2 > "$policy"
	shimmed shell bash -c 'for i in {1..1000}; do words+=("word $i"); done
		(echo ${#words[@]})'
	shimmed python python3 -c 'print(len(bytearray(300 << 20)))'
	shimmed registers "$programs/rdma-memlock" sizes
	attempt refused LD_PRELOAD="$library" "$programs/exhaust" "$limit"
	attempt half LD_PRELOAD="$library" "$programs/grow" 1 $((limit / 2))
	echo 1 > "$policy"
	attempt granted LD_PRELOAD="$library" "$programs/grow" 1 "$limit"
}

setup() {
	load ../helper
	load lab
}

@test "with vm.overcommit_memory=2 programs start, work and register" {
	local case
	for case in shell python registers; do
		ended $case
		[ "$(wc -c < "$results/$case.err")" -eq 0 ]
	done
	[ "$(< "$results/shell.out")" = 1000 ]
	[ "$(< "$results/python.out")" = 314572800 ]
	grep -qx '16384 KiB: data right' "$results/registers.out"
	[ "$(reported registers .registration.served)" -gt 0 ]
}

@test "half of the commit limit can be allocated; all of it only if the kernel does not count it" {
	ended half
	ended granted
}

@test "more than the commit limit gives NULL with ENOMEM, and the program continues" {
	ended refused
	[ "$(< "$results/refused.out")" = 0 ]
}
