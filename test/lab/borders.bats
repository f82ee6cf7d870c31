#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: a block may extend across the places where the heap grew and where memory regions
# end. Freed memory coalesces across them, any range is served, an MPI program's arrays arrive
# complete, and once its sizes repeat nothing more is registered.

load lab

setup_file() {
	build_mpi rounds
	vm_options+=(--timeout 1200)
	load ../scripts
	guest_variables=(script)
	boot
}

in_guest() {
	local case

	for case in merge grow realloc any; do
		attempt "plain-$case" "$programs/rdma-script" "${script[$case]}"
		shimmed "eager-$case" "$programs/rdma-script" "${script[$case]}"
		shimmed "lazy-$case" PINALLOC_REGISTER=lazy "$programs/rdma-script" "${script[$case]}"
	done
	for case in openmpi mpich; do
		attempt plain-$case mpirun.$case -n 2 "$BATS_FILE_TMPDIR/rounds.$case" arrays 20
	done
	job openmpi mpirun.openmpi -n 2 "$BATS_FILE_TMPDIR/rounds.openmpi" arrays 120
	job mpich PINALLOC_MAX_PINNED=256M "${no_ucx_cache[@]}" mpirun.mpich -n 2 "$BATS_FILE_TMPDIR/rounds.mpich" arrays 120
}

# served CASE PART: the case is right, eager and lazy, and sends no request to libibverbs. Each request
# waits for one memory region at most, and ahead of requests there is one for each cell of 2 MiB at most. Resident
# memory is at most that without the library, or PART times as much, plus 64 MiB.
served() {
	local how ahead=1
	ended "plain-$1"
	for how in eager lazy; do
		[ $how = eager ] || ahead=0
		ended "$how-$1"
		[ "$(reported "$how-$1" .registration.passed_through)" -eq 0 ]
		[ "$(reported "$how-$1" ".registration.mr_created - .registration.mr_ahead <= .registration.served and
			.registration.mr_ahead <= $ahead * (.memory.mapped_bytes / 2097152 + 1)")" = true ]
		[ "$(value "$how-$1" peak)" -le $(($2 * $(value "plain-$1" peak) + (64 << 20))) ]
	done
}

# settles NAME: after six rounds of all sizes, each cell that blocks make has been registered, and of as
# many more no request waits for it. The library's own memory, of 4 MiB or less, is not the heap's.
settles() {
	local rank created
	right "plain-$1" 20
	right "$1" 120
	for rank in 0 1; do
		mapfile -t created < <(sed -n "s/^rank $rank .*created \([0-9]*\) .*/\1/p" "$results/$1.out")
		[ "$(figure "$results/$1.$rank.json" .registration.served)" -gt 0 ]
		[ "${created[1]}" -le $((created[0] + 2)) ]
		[ "$(of_the_heap "$results/$1.$rank.json")" = "{}" ]
	done
	[ "$(value "$1" resident)" -le $(($(value "plain-$1" resident) * 6 / 5 + 4096)) ]
}

@test "a block made of 24 freed ones is served, and reuses their memory" {
	served merge 1
}

@test "blocks that are each larger than the last are served, and reuse its memory" {
	served grow 1
}

@test "a block that grows by realloc is served at each size, and counts twice at most" {
	served realloc 2
}

@test "blocks of any size, freed out of order, are served" {
	served any 1
}

@test "Open MPI's arrays arrive with UCX's cache, and registrations soon stop" {
	settles openmpi
}

@test "MPICH's arrays do so without the cache, also across the borders of many cells" {
	settles mpich
}
