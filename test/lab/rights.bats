#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: a key has the rights that were asked for and no others; with
# PINALLOC_ACCESS=local a remote key opens what was asked for and no more, and is dead
# after ibv_dereg_mr. What remains otherwise is as pinalloc(7) says. And it costs jobs
# one or two sets of keys.

setup_file() {
	load ../helper
	load lab
	build_mpi exchange
	vm_options=("${one_processor[@]}")
	boot job
}

# job NAME [VARIABLE=VALUE…] COMMAND…: with reports, and what is armed said.
job() {
	local name=$1
	shift
	attempt "$name" LD_PRELOAD="$library" PINALLOC_LOG=info \
		PINALLOC_REPORT="/ctl/$name.%r.json" "$@"
}

in_guest() {
	local rights=$programs/rdma-rights mpi command

	attempt plain-exact "$rights" exact
	shimmed exact "$rights" exact
	shimmed exact-lazy PINALLOC_REGISTER=lazy "$rights" exact
	shimmed rereg "$rights" rereg
	shimmed region "$rights" region
	attempt plain-outside "$rights" outside
	shimmed outside PINALLOC_ACCESS=local "$rights" outside
	shimmed exact-local PINALLOC_ACCESS=local "$rights" exact

	for mpi in openmpi mpich; do
		mapfile -t command < <(pair_over_ucx $mpi "$BATS_FILE_TMPDIR/exchange.$mpi" 24 2000000)
		job ucx-$mpi "${command[@]}"
		job local-$mpi PINALLOC_ACCESS=local "${command[@]}"
	done
	mapfile -t command < <(pair_over_libfabric "$BATS_FILE_TMPDIR/exchange.openmpi" 24 2000000)
	job libfabric "${command[@]}"
	job local-libfabric PINALLOC_ACCESS=local "${command[@]}"
}

setup() {
	load ../helper
	load lab
}

# passed NAME: requests of a case that libibverbs had for their rights.
passed() {
	reported "$1" '.registration.passed_through_reasons["rights beyond PINALLOC_ACCESS"] // 0'
}

@test "the keys of each set of rights have them, and no others" {
	ended plain-exact
	ended exact
	ended exact-lazy
	[ "$(reported exact .registration.served)" -eq 10 ]
	[ "$(reported exact .registration.mr_created)" -eq 10 ]
	[ "$(reported exact '.registration.passed_through_reasons["remote writing without local"]')" -eq 1 ]
}

@test "ibv_rereg_mr gives keys with exactly the new rights" {
	ended rereg
}

@test "otherwise a key opens its memory region until it is detached, with its rights alone" {
	ended region
}

@test "with PINALLOC_ACCESS=local a peer gets what was asked for, and nothing after ibv_dereg_mr" {
	ended plain-outside
	ended outside
	[ "$(passed outside)" -eq 3 ]
	[ "$(reported outside .registration.served)" -eq 1 ]
	ended exact-local
	[ "$(passed exact-local)" -eq 9 ]
	[ "$(reported exact-local .registration.served)" -eq 2 ]
}

# sets NAME: the sets of rights that a job's ranks asked for, each line one, and how many ranks.
sets() {
	sed -n 's/.*protection domain on rxe0 armed: //p' "$results/$1.err" | sort | uniq -c
}

# right NAME: the job ran, and every word of it arrived.
right() {
	ended "$1"
	grep -qx 'rounds 24 wrong 0' "$results/$1.out"
}

@test "jobs over UCX and libfabric ask for one or two sets of rights" {
	local name
	for name in ucx-openmpi ucx-mpich libfabric; do
		right $name
		sets $name
		[ "$(sets $name | wc -l)" -ge 1 ]
		[ "$(sets $name | wc -l)" -le 2 ]
	done
}

@test "with PINALLOC_ACCESS=local they work, with registrations of their own" {
	local name
	for name in ucx-openmpi ucx-mpich libfabric; do
		right local-${name#ucx-}
		[ "$(figure "$results/local-${name#ucx-}.0.json" \
			'.registration.passed_through_reasons["rights beyond PINALLOC_ACCESS"]')" -gt 0 ]
		run ! grep -E 'armed:.*(read|write|atomic)' "$results/local-${name#ucx-}.err"
	done
}
