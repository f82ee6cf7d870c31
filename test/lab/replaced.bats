#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: whatever a program does with malloc, its messages go through the pages
# it sees, with every kind of registration cache; and what it does with its own
# mappings, or with the heap behind malloc, is not worse off. bench/stale prints the
# same as a table.

setup_file() {
	load ../helper
	load lab
	"$top_srcdir/test/lab/stale-cases" build "$BATS_FILE_TMPDIR"
	in_guest() {
		"$top_srcdir/test/lab/stale-cases" "$BATS_FILE_TMPDIR" "$library"
	}
	boot
}

setup() {
	load ../helper
	load lab
}

# cases NAME GROUP: "WAY SIDE OUTCOME" for each case of a group.
cases() {
	awk -v group="$2" 'NR == FNR { of[$2] = $1; next } of[$1] == group { print $1, $2, $3 }' \
		<("$BATS_FILE_TMPDIR/mpi-stale.openmpi" list) "$results/$1.cases"
}

# number NAME GROUP PATTERN: how many of those match; shows the others.
number() {
	cases "$1" "$2" | grep -vE "$3" >&2 || :
	cases "$1" "$2" | grep -cE "$3" || :
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

@test "no cache is told of system calls that bypass libc, and messages are corrupt" {
	[ "$(number openmpi-without mapped '/(raw|syscall\(\)) .* corrupt$')" -eq 12 ]
	[ "$(number mpich-without mapped '/(raw|syscall\(\)) .* corrupt$')" -eq 12 ]
	[ "$(number openmpi-direct-without mapped ' right$')" -eq 22 ]
}

# worse CONFIGURATION GROUP: the cases that are worse with the library than without.
worse() {
	cases "$1-without" "$2" > "$BATS_TEST_TMPDIR/without"
	cases "$1-with" "$2" > "$BATS_TEST_TMPDIR/with"
	[ -s "$BATS_TEST_TMPDIR/with" ]
	awk -v where="$1" '
		BEGIN { grade["right"] = 1; grade["never"] = grade["error"] = 2; grade["corrupt"] = 3 }
		NR == FNR { before[$1 $2] = $3; next }
		grade[$3] > grade[before[$1 $2]] { print where, $0, "was", before[$1 $2] }' \
		"$BATS_TEST_TMPDIR/without" "$BATS_TEST_TMPDIR/with"
}

@test "what a program maps itself, or replaces behind malloc, is no worse off" {
	local configuration group
	for configuration in openmpi openmpi-direct mpich openmpi-blind; do
		for group in mapped behind; do
			[ "$(worse $configuration $group)" = "" ]
		done
	done
	[ "$(number openmpi-direct-with mapped ' right$')" -eq 22 ]
}

@test "without a cache even what is replaced behind malloc is right, and named" {
	[ "$(number openmpi-direct-with behind ' right$')" -eq 12 ]
	grep -q 'replaced pages of its heap behind malloc' "$results/openmpi-direct-with.err"
}
