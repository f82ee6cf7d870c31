#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: a key has exactly the requested rights. With PINALLOC_ACCESS=local a remote key gives
# access to exactly the requested range, and to nothing after ibv_dereg_mr; without it, pinalloc(7)
# describes the limits. Jobs use one or two access sets.

setup_file() {
	load ../helper
	load lab
	build_mpi exchange
	vm_options=("${one_processor[@]}")
	boot job
}

# job NAME [VARIABLE=VALUE…] COMMAND…: runs a job with reports, and logs what is armed.
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

# passed NAME: the number of requests that went to libibverbs because of their rights.
passed() {
	reported "$1" '.registration.passed_through_reasons["rights beyond PINALLOC_ACCESS"] // 0'
}

@test "the keys of an access set have exactly its rights" {
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

@test "a key gives access to its whole memory region until detach, with its rights only" {
	ended region
}

@test "with PINALLOC_ACCESS=local a peer reaches only its buffer, and nothing after ibv_dereg_mr" {
	ended plain-outside
	ended outside
	[ "$(passed outside)" -eq 3 ]
	[ "$(reported outside .registration.served)" -eq 1 ]
	ended exact-local
	[ "$(passed exact-local)" -eq 9 ]
	[ "$(reported exact-local .registration.served)" -eq 2 ]
}

# sets NAME: the access sets that a job's ranks requested, one in a line, with the number of ranks.
sets() {
	sed -n 's/.*protection domain on rxe0 armed: //p' "$results/$1.err" | sort | uniq -c
}

# right NAME: the job ran, and every word arrived.
right() {
	ended "$1"
	grep -qx 'rounds 24 wrong 0' "$results/$1.out"
}

@test "jobs over UCX and libfabric use one or two access sets" {
	local name
	for name in ucx-openmpi ucx-mpich libfabric; do
		right $name
		sets $name
		[ "$(sets $name | wc -l)" -ge 1 ]
		[ "$(sets $name | wc -l)" -le 2 ]
	done
}

@test "with PINALLOC_ACCESS=local they work, with their own registrations" {
	local name
	for name in ucx-openmpi ucx-mpich libfabric; do
		right local-${name#ucx-}
		[ "$(figure "$results/local-${name#ucx-}.0.json" \
			'.registration.passed_through_reasons["rights beyond PINALLOC_ACCESS"]')" -gt 0 ]
		run ! grep -E 'armed:.*(read|write|atomic)' "$results/local-${name#ucx-}.err"
	done
}
