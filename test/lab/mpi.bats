#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: an MPI program is right and registers its heap once, whatever it allocates and frees,
# with its MPI library's registration cache and without.

setup_file() {
	load ../helper
	load lab
	build_mpi exchange
	build_count_reg
	boot
}

in_guest() {
	local mpi rounds cache command

	for mpi in openmpi mpich; do
		for rounds in 6 24; do
			for cache in on off; do
				mapfile -t command < <(pair_over_ucx $mpi "$BATS_FILE_TMPDIR/exchange.$mpi" $rounds)
				[ $cache = on ] || command=("${no_ucx_cache[@]}" "${command[@]}")
				attempt $mpi-$rounds-$cache LD_PRELOAD="$library" \
					PINALLOC_REPORT="/ctl/$mpi-$rounds-$cache.%r.json" "${command[@]}"
			done
			counted glibc-$mpi-$rounds "${command[@]}"
		done
	done
	mapfile -t command < <(pair_over_libfabric "$BATS_FILE_TMPDIR/exchange.openmpi" 6 8000000)
	counted glibc-libfabric "${command[@]}"
	attempt libfabric LD_PRELOAD="$library" PINALLOC_REPORT=/ctl/libfabric.%r.json \
		"${command[@]}"
}

setup() {
	load ../helper
	load lab
}

# right NAME ROUNDS: the job ran, and every word arrived.
right() {
	ended "$1"
	grep -qx "rounds $2 wrong 0" "$results/$1.out"
}

# total NAME PATH: the sum of a value over both ranks' reports.
total() {
	jq -s "map($2) | add" "$results/$1.0.json" "$results/$1.1.json"
}

# once NAME: the heap was registered as it grew, at most a few times for each step, never for a
# message, and no heap request went to libibverbs.
once() {
	local rank report

	for rank in 0 1; do
		report=$results/$1.$rank.json
		[ "$(figure "$report" .registration.mr_created)" -gt 0 ]
		[ "$(figure "$report" '.registration.mr_created <=
			.memory.regions * (.registration.domains | length)')" = true ]
		[ "$(of_the_heap "$report")" = "{}" ]
		[ "$(figure "$report" .registration.evicted)" -eq 0 ]
	done
}

# registrations NAME: the number of large registrations in a job without the library.
registrations() {
	awk '/^registrations / { n += $2 } END { print n }' "$results/$1.err"
}

# The heap stops growing after a few rounds, depending on chance.
few=6

# as_promised MPI
as_promised() {
	local cache rounds

	for cache in on off; do
		for rounds in 6 24; do
			right "$1-$rounds-$cache" "$rounds"
			once "$1-$rounds-$cache"
		done
		[ "$(total "$1-24-$cache" .registration.mr_created)" -le \
			$(($(total "$1-6-$cache" .registration.mr_created) + few)) ]
	done
	[ "$(total "$1-24-off" .registration.mr_created)" -le \
		$(($(total "$1-24-on" .registration.mr_created) + few)) ]
	[ "$(total "$1-24-on" .registration.served)" -lt "$(total "$1-24-off" .registration.served)" ]
	[ "$(total "$1-24-off" .registration.served)" -ge \
		$(($(total "$1-6-off" .registration.served) + 33)) ]
}

# grows MPI: the negative control.
grows() {
	right "glibc-$1-6" 6
	right "glibc-$1-24" 24
	[ "$(registrations "glibc-$1-24")" -ge $(($(registrations "glibc-$1-6") + 26)) ]
}

@test "Open MPI over UCX registers the heap once, with UCX's cache and without" {
	as_promised openmpi
}

@test "MPICH over UCX registers the heap once, with UCX's cache and without" {
	as_promised mpich
}

@test "without the library and the cache, they register for every message" {
	grows openmpi
	grows mpich
}

@test "Open MPI over libfabric registers the heap once" {
	right glibc-libfabric 6
	right libfabric 6
	once libfabric
	[ "$(total libfabric .registration.served)" -gt 0 ]
}
