#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: a block may extend across the places where the heap grew and where memory regions
# end. Freed memory coalesces across them, any range is served, an MPI program's arrays arrive
# complete, and once its sizes repeat nothing more is registered.

setup_file() {
	load ../helper
	load lab
	build_mpi arrays
	vm_options=(--timeout 1200)
	boot
}

in_guest() {
	local case mpi rounds command

	for case in merge grow realloc any; do
		attempt "plain-$case" "$programs/rdma-borders" $case
		shimmed "eager-$case" "$programs/rdma-borders" $case
		shimmed "lazy-$case" PINALLOC_REGISTER=lazy "$programs/rdma-borders" $case
	done
	for mpi in openmpi mpich; do
		for rounds in 20 60; do
			mapfile -t command < <(pair_over_ucx $mpi "$BATS_FILE_TMPDIR/arrays.$mpi" $rounds)
			[ $rounds = 60 ] || attempt "plain-$mpi" "${command[@]}"
			attempt "$mpi-$rounds-on" LD_PRELOAD="$library" \
				PINALLOC_REPORT="/ctl/$mpi-$rounds-on.%r.json" "${command[@]}"
			attempt "$mpi-$rounds-off" LD_PRELOAD="$library" \
				PINALLOC_MAX_PINNED=256M "${no_ucx_cache[@]}" \
				PINALLOC_REPORT="/ctl/$mpi-$rounds-off.%r.json" "${command[@]}"
		done
	done
}

setup() {
	load ../helper
	load lab
}

# served CASE PART: the case is right, eager and lazy, and sends no request to libibverbs. It has at
# most one memory region for each request and, ahead of requests, one for each growth step. Resident
# memory is at most that without the library, or PART times as much, plus 64 MiB.
served() {
	local how ahead=1
	ended "plain-$1"
	for how in eager lazy; do
		[ $how = eager ] || ahead=0
		ended "$how-$1"
		diff <(head -n 1 "$results/plain-$1.out") <(head -n 1 "$results/$how-$1.out")
		grep "^$1 ranges [0-9]* refused 0 wrong 0$" "$results/$how-$1.out"
		[ "$(reported "$how-$1" .registration.passed_through)" -eq 0 ]
		[ "$(reported "$how-$1" ".registration.mr_created <=
			.registration.served + $ahead * .memory.regions")" = true ]
		[ "$(value "$how-$1" resident)" -le \
			$(($2 * $(value "plain-$1" resident) + 64 * 1024)) ]
	done
}

# right NAME ROUNDS: the job ran, and every word arrived.
right() {
	ended "$1"
	grep -qE "^rounds $2 wrong 0 resident [0-9]+$" "$results/$1.out"
}

# registrations NAME RANK: the number of real registrations.
registrations() {
	figure "$results/$1.$2.json" .registration.mr_created
}

# settles MPI CACHE MORE: the heap is registered after two rounds of all sizes. A run of three times
# as many rounds registers no more, but for the timing of the registration thread.
settles() {
	local rank
	right "plain-$1" 20
	right "$1-20-$2" 20
	right "$1-60-$2" 60
	for rank in 0 1; do
		[ "$(registrations "$1-20-$2" $rank)" -gt 0 ]
		[ "$(registrations "$1-60-$2" $rank)" -le \
			$(($(registrations "$1-20-$2" $rank) + $3)) ]
		[ "$(of_the_heap "$results/$1-60-$2.$rank.json")" = "{}" ]
	done
	[ "$(value "$1-60-$2" resident)" -le $(($(value "plain-$1" resident) * 6 / 5)) ]
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
	settles openmpi on 2
}

@test "MPICH's arrays arrive with UCX's cache, and registrations soon stop" {
	settles mpich on 2
}

# Each cell may once get a memory region over all of it; the heap reaches into six cells at most.
@test "so they do without the cache, also across the borders of many cells" {
	settles openmpi off 6
	settles mpich off 6
}
