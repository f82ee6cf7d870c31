#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: the adapter and the program never see different memory. test/stale.bats has this on the host, with
# every way to replace pages; here is one such case with real verbs, and MPI. Messages of MPI use the pages
# that the program sees, whatever it does with malloc, with every kind of registration cache; replacements of
# heap pages behind malloc, and of memory that the program mapped itself, are noticed in time if the kernel
# reports them; otherwise it is no worse than without the library. bench/stale prints the same as a table,
# and more.

load lab

setup_file() {
	"$top_srcdir/test/lab/stale-cases" build "$BATS_FILE_TMPDIR"
	load ../scripts
	boot sample replace replaced_user stale
}

in_guest() {
	attempt glibc "$programs/rdma-script" "$(stale 120)"
	shimmed eager "$programs/rdma-script" "$(stale 120)"
	thorough replaced_user
	replace
}

replaced_user() {
	publish "$programs/rdma-replaced"
	as_nobody attempt replaced-user 8388608 LD_PRELOAD="$library" PINALLOC_MAX_PINNED=4M \
		/run/public/rdma-replaced
}

# sample PATTERN CONFIGURATION…: with the library.
sample() {
	"$top_srcdir/test/lab/stale-cases" -w -g "$1" "$BATS_FILE_TMPDIR" "$library" "${@:2}"
}

# Messages of MPI.
replace() {
	local cases=("$top_srcdir/test/lab/stale-cases" -g)
	local common='^mapped (munmap[+]mmap|mmap-fixed|mremap-fixed|madvise|brk)/raw$'

	if [ -z "$everything" ]; then
		sample '^(mapped (munmap[+]mmap|madvise)/raw|heap free[+]malloc|behind .*mmap-fixed/raw)$' openmpi
		sample '^heap free[+]malloc$' mpich
		return
	fi
	"${cases[@]}" . "$BATS_FILE_TMPDIR" "$library" openmpi
	"${cases[@]}" '^(heap|behind) ' "$BATS_FILE_TMPDIR" "$library" openmpi-blind
	"${cases[@]}" "$common|^(heap|behind) " "$BATS_FILE_TMPDIR" "$library" mpich
	sample '^mapped [^/]*(/raw)?$|^heap free[+][cm]alloc$' openmpi-ofi
	sample "$common|^(heap|behind) " openmpi-direct
	sample "$common|^heap free[+][cm]alloc\$" openmpi-ofi-memhooks openmpi-ofi-userfaultfd openmpi-ofi-disabled
}

@test "with glibc's malloc, a cached registration transfers wrong data" {
	ended glibc 1
	grep -q '^# write x y: wrong' "$results/glibc.out"
	grep -q '^# write y x: wrong' "$results/glibc.out"
}

@test "with the library, a cached registration is always right" {
	ended eager
	[ "$(value eager hits)" -ge 100 ]
	[ "$(reported eager .registration.served)" -gt 0 ]
}

# bats test_tags=thorough
@test "pages replaced behind malloc are noticed in a process without privileges" {
	ended replaced-user
	grep -q 'replaced pages of its heap behind malloc' "$results/replaced-user.err"
}

# --- messages of MPI ---

# cases NAME GROUP: "WAY SIDE OUTCOME" for each case of a group.
cases() {
	awk -v group="$2" 'NR == FNR { of[$2] = $1; next } of[$1] == group { print $1, $2, $3 }' \
		<("$BATS_FILE_TMPDIR/mpi-stale.openmpi" list) "$results/$1.cases"
}

# number NAME GROUP PATTERN: the number of cases that match; prints the others.
number() {
	cases "$1" "$2" | grep -vE "$3" >&2 || :
	cases "$1" "$2" | grep -cE "$3" || :
}

# worse CONFIGURATION GROUP: the cases that are worse with the library than without.
worse() {
	cases "$1-without" "$2" > "$BATS_TEST_TMPDIR/without"
	cases "$1-with" "$2" > "$BATS_TEST_TMPDIR/with"
	[ -s "$BATS_TEST_TMPDIR/with" ]
	awk -v where="$1" '
		BEGIN { grade["right"] = 1; grade["corrupt"] = 3
			grade["never"] = grade["error"] = grade["hang"] = 2 }
		NR == FNR { before[$1 $2] = $3; next }
		grade[$3] > grade[before[$1 $2]] { print where, $0, "was", before[$1 $2] }' \
		"$BATS_TEST_TMPDIR/without" "$BATS_TEST_TMPDIR/with"
}

# all_cases_right CONFIGURATION GROUP…: with the library all cases of these groups are right, of which there
# are some, but for ways that the kernel refuses and churn that never comes by the address again.
# Requests of both ranks were served, as reports say, or the record of a rank that is killed: at the end
# of a job of MPICH a thread of UCX 1.18 fails an assertion, without the library too.
all_cases_right() {
	local configuration=$1 group refused

	refused=$(awk '$2 == "error" { print $1 }' "$results/told" | paste -sd '|')
	for group in "${@:2}"; do
		[ "$(cases "$configuration-with" "$group" | wc -l)" -gt 0 ]
		[ "$(number "$configuration-with" "$group" \
			" right\$|^(${refused:-none}) .* error\$|^free[+]churn[+]malloc .* never\$")" -eq \
			"$(cases "$configuration-with" "$group" | wc -l)" ]
	done
	[ "$("$top_builddir/pinalloc" report --json "$results/$configuration-with".[01].json* 2> /dev/null |
		jq -c '[.ranks[].registration.served > 0]')" = '[true,true]' ]
}

@test "with the library a heap block that is reused is right, with every cache" {
	all_cases_right openmpi heap
	[ -z "$everything" ] || all_cases_right openmpi-blind heap
	all_cases_right mpich heap
}

@test "replacements behind malloc and of mapped memory are right, and the former reported" {
	all_cases_right openmpi behind mapped
	grep -q 'replaced pages of its heap behind malloc' "$results/openmpi-with.err"
	[ "$(figure "$results/openmpi-with.0.json" '.watch.forgotten > 0 and .watch.events > 0')" = true ]
	[ "$(figure "$results/openmpi-with.0.json" '.watch.invalidations > 0')" = true ]
}

# told GROUP: "WAY ANSWER", what the kernel reports to a userfaultfd.
told() {
	awk -v group="$1" 'NR == FNR { of[$2] = $1; next } of[$1] == group' \
		<("$BATS_FILE_TMPDIR/mpi-stale.openmpi" list) "$results/told"
}

# bats test_tags=thorough
@test "the kernel reports every replacement of pages that it can report" {
	told mapped
	# These do not move pages while the adapter holds them.
	run -0 grep -v ' told$' <(told mapped)
	[ "$(grep -vcE '^(madvise-(cold|pageout|collapse)/raw|child:.*) silent$|^process_madvise/raw error$' <<< "$output")" -eq 0 ]
	[ "$(told untold | grep -cE ' (silent|refused|error)$')" -eq "$(told untold | wc -l)" ]
}

# bats test_tags=thorough
@test "without the library heap blocks are right only if the cache is notified of unmapped memory" {
	[ "$(number openmpi-without heap ' right$')" -eq "$(cases openmpi-without heap | wc -l)" ]
	[ "$(number mpich-without heap ' right$')" -eq "$(cases mpich-without heap | wc -l)" ]
	[ "$(number openmpi-blind-without heap ' corrupt$')" -gt 0 ]
}

# bats test_tags=thorough
@test "without the library caches miss pages replaced behind malloc" {
	[ "$(number openmpi-without behind ' corrupt$')" -gt 0 ]
	[ "$(number openmpi-blind-without behind ' corrupt$')" -gt 0 ]
}

# bats test_tags=thorough
@test "without the library no cache notices all system calls that bypass libc, and data is corrupt" {
	local name
	for name in openmpi mpich; do
		[ "$(number $name-without mapped '/(raw|syscall\(\)) .* corrupt$')" -gt 0 ]
	done
}

# bats test_tags=thorough
@test "replacements the kernel does not report corrupt data, unless libc is called and hooked" {
	[ "$(number openmpi-without untold ' corrupt$')" -gt 0 ]
	[ "$(number openmpi-without untold '/libc .* right$')" -gt 0 ]
}

# bats test_tags=thorough
@test "with the library no replacement that the kernel reports corrupts data, over UCX and libfabric" {
	local name
	for name in openmpi openmpi-direct mpich openmpi-ofi{,-memhooks,-userfaultfd,-disabled}; do
		[ "$(number $name-with mapped ' corrupt$')" -eq 0 ]
	done
	for name in openmpi mpich; do
		[ "$(worse $name mapped)" = "" ]
	done
	for name in openmpi-direct openmpi-ofi{,-memhooks,-disabled}; do
		all_cases_right $name mapped heap
	done
	all_cases_right openmpi-ofi-userfaultfd heap
}

# bats test_tags=thorough
@test "each cache is notified of pages replaced behind malloc, and the replacement is reported" {
	local name
	for name in openmpi-direct openmpi-blind; do
		all_cases_right $name behind
		grep -q 'replaced pages of its heap behind malloc' "$results/$name-with.err"
	done
	# UCX's own hook makes two mremap calls fail.
	[ "$(number mpich-with behind ' (right|error)$')" -eq "$(cases mpich-with behind | wc -l)" ]
	[ "$(number mpich-with behind ' error$')" -eq "$(number mpich-without behind ' error$')" ]
}

# bats test_tags=thorough
@test "unwatchable memory is counted and reported once, and works as without the library" {
	[ "$(worse openmpi untold)" = "" ]
	[ "$(figure "$results/openmpi-with.0.json" .watch.unwatchable)" -gt 0 ]
	[ "$(grep -c 'cannot be watched' "$results/openmpi-with.err")" -eq 2 ]
}
