#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: whatever a program does with malloc, its messages use the pages it sees, with every
# kind of registration cache; and heap pages that it replaces behind malloc are noticed in time.
# bench/stale prints the same as a table.

setup_file() {
	load ../helper
	load lab
	"$top_srcdir/test/lab/stale-cases" build "$BATS_FILE_TMPDIR"
	in_guest() {
		"$top_srcdir/test/lab/stale-cases" -g '^(heap|behind) ' "$BATS_FILE_TMPDIR" \
			"$library" openmpi openmpi-direct mpich openmpi-blind
	}
	vm_options=("${one_processor[@]}")
	boot
}

setup() {
	load ../helper
	load lab
}

# served NAME: requests of both ranks were served. A rank leaves no report if it is killed: at the end
# of a job of MPICH a thread of UCX 1.18 fails an assertion, without the library too.
served() {
	local report

	for report in "$results/$1".[01].json; do
		[ "$(figure "$report" .registration.served)" -gt 0 ]
	done
}

@test "with the library a heap block that is reused is right, with every cache" {
	local configuration
	for configuration in openmpi openmpi-direct mpich openmpi-blind; do
		[ "$(number $configuration-with heap ' right$')" -eq 24 ]
		served $configuration-with
	done
}

@test "without the library it is right only if the cache is notified of unmapped memory" {
	[ "$(number openmpi-without heap ' right$')" -eq 24 ]
	[ "$(number mpich-without heap ' right$')" -eq 24 ]
	[ "$(number openmpi-blind-without heap ' corrupt$')" -ge 20 ]
}

@test "without the library caches miss pages replaced behind malloc" {
	[ "$(number openmpi-without behind ' corrupt$')" -eq 8 ]
	[ "$(number openmpi-blind-without behind ' corrupt$')" -eq 12 ]
}

@test "with the library each cache is notified, and the replacement is reported" {
	local configuration
	for configuration in openmpi openmpi-direct openmpi-blind; do
		[ "$(number $configuration-with behind ' right$')" -eq 12 ]
		grep -q 'replaced pages of its heap behind malloc' "$results/$configuration-with.err"
	done
	# UCX's own hook makes two mremap calls fail.
	[ "$(number mpich-with behind ' (right|error)$')" -eq 12 ]
	[ "$(number mpich-with behind ' error$')" -eq "$(number mpich-without behind ' error$')" ]
	[ "$(figure "$results/openmpi-with.0.json" .watch.events)" -ge 6 ]
	[ "$(figure "$results/openmpi-with.0.json" .watch.invalidations)" -ge 6 ]
}
