#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: replacements of memory that a program mapped itself are noticed in time if the kernel
# reports them, for every kind of memory and every MPI configuration; otherwise it is no worse than
# without the library. bench/stale prints the same as a table, and more.

setup_file() {
	load ../helper
	load lab
	"$top_srcdir/test/lab/stale-cases" build "$BATS_FILE_TMPDIR"
	in_guest() {
		local cases=("$top_srcdir/test/lab/stale-cases" -g)
		local common='^mapped (munmap[+]mmap|mmap-fixed|mremap-fixed|madvise|brk)/'

		"${cases[@]}" '^(mapped|untold) ' "$BATS_FILE_TMPDIR" "$library" openmpi
		"${cases[@]}" '^mapped ' "$BATS_FILE_TMPDIR" "$library" openmpi-ofi
		"${cases[@]}" "$common" "$BATS_FILE_TMPDIR" "$library" openmpi-direct mpich \
			openmpi-ofi-memhooks openmpi-ofi-userfaultfd
	}
	vm_options=("${one_processor[@]}")
	boot
}

setup() {
	load ../helper
	load lab
}

# told GROUP: "WAY ANSWER", what the kernel reports to a userfaultfd.
told() {
	awk -v group="$1" 'NR == FNR { of[$2] = $1; next } of[$1] == group' \
		<("$BATS_FILE_TMPDIR/mpi-stale.openmpi" list) "$results/told"
}

@test "the kernel reports every replacement of pages that it can report" {
	told mapped
	[ "$(told mapped | grep -c ' told$')" -eq 29 ]
	# These do not move pages while the adapter holds them.
	run -0 grep -v ' told$' <(told mapped)
	[ "$(grep -cE '^(madvise-(cold|pageout|collapse)/raw|child:.*) silent$' <<< "$output")" -eq 5 ]
	[ "${#lines[@]}" -eq 5 ]
	[ "$(told untold | grep -cE ' (silent|refused|error)$')" -eq "$(told untold | wc -l)" ]
}

@test "without the library no cache notices system calls that bypass libc, and data is corrupt" {
	local name
	for name in openmpi openmpi-ofi; do
		[ "$(number $name-without mapped '/(raw|syscall\(\)) .* corrupt$')" -eq 28 ]
	done
	for name in mpich openmpi-ofi-memhooks; do
		[ "$(number $name-without mapped '/(raw|syscall\(\)) .* corrupt$')" -eq 12 ]
	done
}

@test "nor do they notice all replacements through libc" {
	[ "$(number openmpi-without mapped '/libc .* corrupt$')" -eq 4 ]
}

@test "replacements the kernel does not report corrupt data, unless libc is called and hooked" {
	[ "$(number openmpi-without untold ' corrupt$')" -eq 20 ]
	[ "$(number openmpi-without untold '/libc .* right$')" -eq 6 ]
}

@test "without the library data is right if there is no cache, or libfabric's monitor is notified by the kernel" {
	[ "$(number openmpi-direct-without mapped ' right$')" -eq 22 ]
	[ "$(number openmpi-ofi-userfaultfd-without mapped ' right$')" -eq 22 ]
}

@test "with the library no replacement that the kernel reports corrupts data, over UCX and libfabric" {
	local name
	for name in openmpi openmpi-direct mpich openmpi-ofi{,-memhooks,-userfaultfd}; do
		[ "$(number $name-with mapped ' corrupt$')" -eq 0 ]
		[ "$(worse $name mapped)" = "" ]
	done
	for name in openmpi openmpi-direct openmpi-ofi{,-memhooks}; do
		[ "$(number $name-with mapped ' right$')" -eq "$(cases $name-with mapped | wc -l)" ]
	done
}

@test "unwatchable memory is counted and reported once, and works as without the library" {
	[ "$(worse openmpi untold)" = "" ]
	[ "$(figure "$results/openmpi-with.0.json" .watch.unwatchable)" -gt 0 ]
	[ "$(grep -c 'cannot be watched' "$results/openmpi-with.err")" -eq 2 ]
}
