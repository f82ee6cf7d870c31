#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: whatever a program does with malloc, its messages go through the pages
# it sees, with every kind of registration cache; and what it does with the heap behind
# malloc is not worse off. bench/stale prints the same as a table.

setup_file() {
	load ../helper
	load lab
	"$top_srcdir/test/lab/stale-cases" build "$BATS_FILE_TMPDIR"
	in_guest() {
		"$top_srcdir/test/lab/stale-cases" -g '^(heap|behind) ' "$BATS_FILE_TMPDIR" \
			"$library" openmpi openmpi-direct mpich openmpi-blind
	}
	boot
}

setup() {
	load ../helper
	load lab
}

# served NAME: both ranks got keys of the heap.
served() {
	[ "$(figure "$results/$1.0.json" .registration.served)" -gt 0 ]
	[ "$(figure "$results/$1.1.json" .registration.served)" -gt 0 ]
}

@test "under the library a heap block that comes back is right, with every cache" {
	local configuration
	for configuration in openmpi openmpi-direct mpich openmpi-blind; do
		[ "$(number $configuration-with heap ' right$')" -eq 24 ]
		served $configuration-with
	done
}

@test "without the library it is right only where the cache is told what is unmapped" {
	[ "$(number openmpi-without heap ' right$')" -eq 24 ]
	[ "$(number mpich-without heap ' right$')" -eq 24 ]
	[ "$(number openmpi-blind-without heap ' corrupt$')" -ge 20 ]
}

@test "what a program replaces behind malloc is no worse off" {
	local configuration
	for configuration in openmpi openmpi-direct mpich openmpi-blind; do
		[ "$(worse $configuration behind)" = "" ]
	done
}

@test "without a cache even what is replaced behind malloc is right, and named" {
	[ "$(number openmpi-direct-with behind ' right$')" -eq 12 ]
	grep -q 'replaced pages of its heap behind malloc' "$results/openmpi-direct-with.err"
}
