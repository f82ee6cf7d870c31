#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: the adapter and the program never see different memory. test/stale.bats has this on the host, with
# every way to replace pages; here is one such case with real verbs, and messages of MPI, over UCX and libfabric, in
# a few of the ways. bench/stale prints the others as a table, without the library, too.
# Only here: messages of MPI whose pages were replaced.

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

# Messages of MPI. bench/stale has the others.
replace() {
	sample '^(mapped (munmap[+]mmap|madvise)/raw|heap free[+]malloc|behind .*mmap-fixed/raw)$' openmpi
	sample '^heap free[+]malloc$' mpich
	thorough sample '^(mapped (munmap[+]mmap|m(map|remap)-fixed|madvise|brk)/raw|heap free[+][cm]alloc)$' openmpi-ofi
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

# all_cases_right CONFIGURATION GROUP…: with the library all cases of these groups are right, of which there
# are some. Requests of both ranks were served, as reports say, or the record of a rank that is killed: at the end
# of a job of MPICH a thread of UCX 1.18 fails an assertion, without the library too.
all_cases_right() {
	local configuration=$1 group

	for group in "${@:2}"; do
		cases "$configuration-with" "$group" | grep .
		run ! grep -v ' right$' <(cases "$configuration-with" "$group")
	done
	[ "$("$top_builddir/pinalloc" report --json "$results/$configuration-with".[01].json* 2> /dev/null |
		jq -c '[.ranks[].registration.served > 0]')" = '[true,true]' ]
}

@test "with the library a heap block that is reused is right, with every cache" {
	all_cases_right openmpi heap
	all_cases_right mpich heap
}

@test "replacements behind malloc and of mapped memory are right, and the former reported" {
	all_cases_right openmpi behind mapped
	grep -q 'replaced pages of its heap behind malloc' "$results/openmpi-with.err"
	[ "$(figure "$results/openmpi-with.0.json" '.watch.forgotten > 0 and .watch.events > 0')" = true ]
	[ "$(figure "$results/openmpi-with.0.json" '.watch.invalidations > 0')" = true ]
}

# bats test_tags=thorough
@test "so they are over libfabric" {
	all_cases_right openmpi-ofi mapped heap
}
