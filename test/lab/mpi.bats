#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: an MPI program is right and registers its heap once, whatever it allocates and frees,
# whichever registration cache its MPI library has, and however that learns of unmapped memory. Slices of a
# pool are sent from and received into without a registration by an MPI library that knows nothing of
# pools, whose program is in Python.
# Only here: the registration caches of UCX and libfabric themselves.

load lab

setup_file() {
	build_mpi rounds
	guest_variables=(rounds)
	boot over_ucx over_libfabric arrays
}

# Each round is a message of up to 16 MiB, which the ranks send in turn.
rounds=24

# over_ucx NAME MPI [VARIABLE=VALUE…]: runs mpi-rounds over UCX.
over_ucx() {
	job "$1" "${@:3}" "mpirun.$2" -n 2 "$BATS_FILE_TMPDIR/rounds.$2" $rounds
}

# over_libfabric NAME [VARIABLE=VALUE…]: the same with Open MPI over libfabric, and messages up to 8 MiB, which
# soft-RoCE supports there.
over_libfabric() {
	job "$1" OMPI_MCA_pml=cm "${@:2}" mpirun.openmpi -n 2 "$BATS_FILE_TMPDIR/rounds.openmpi" $rounds 8000000
}

# arrays NAME [VARIABLE=VALUE…]: NumPy arrays of a pool, with Debian's mpi4py, which has Open MPI.
arrays() {
	job "$1" PYTHONDONTWRITEBYTECODE=1 "${@:2}" \
		mpirun.openmpi -n 2 /usr/bin/python3 "$top_srcdir/preload/python/exchange.py" 2
}

in_guest() {
	local mpi

	for mpi in openmpi mpich; do
		over_ucx $mpi $mpi
		over_ucx $mpi-direct $mpi "${no_ucx_cache[@]}"
		thorough over_ucx $mpi-local $mpi PINALLOC_LOG=info PINALLOC_ACCESS=local
	done
	over_libfabric libfabric
	thorough over_libfabric libfabric-local PINALLOC_LOG=info PINALLOC_ACCESS=local
	thorough over_ucx no-events openmpi UCX_MEM_EVENTS=n
	# With libfabric's own settings: Open MPI's memory component would watch mappings otherwise.
	thorough over_libfabric disabled FI_MR_CACHE_MONITOR=disabled OMPI_MCA_memory=^patcher
	arrays pool
}

# once NAME: the heap was registered as it grew, never for a message, and no heap request went to
# libibverbs. A cell of 2 MiB has at most three memory regions in each domain: of requests, which get no
# more than they need, and of the thread that registers ahead, also after its blocks have changed.
once() {
	local rank report

	for rank in 0 1; do
		report=$results/$1.$rank.json
		jq -e --argjson rank $rank '.rank == $rank and (.memory.mapped_bytes / 2097152 + 1) as $cells |
			.registration | .served > 0 and .evicted == 0 and .refused == 0 and
			.mr_created > 0 and .mr_created <= 3 * $cells * (.domains | length)' "$report"
		[ "$(of_the_heap "$report")" = "{}" ]
	done
}

# after NAME ROUNDS KEY: the sum over both ranks of what they had printed by then.
after() {
	grep -o "^rank [01] rounds $2 .*" "$results/$1.out" | grep -o "$3 [0-9]*" |
		awk '{ n += $2 } END { print n }'
}

# constant NAME: after six rounds the heap has stopped to grow, but for chance, and no message is
# registered any more, which would be 36. What is registered ahead, at any time, does not count.
constant() {
	[ "$(after "$1" $rounds created)" -le $(($(after "$1" 6 created) + 24)) ]
}

# cached NAME, uncached NAME [N]: with a cache there are a few requests; without one, N are served for
# every message, one in each rank.
cached() {
	right "$1"
	once "$1"
	constant "$1"
	[ "$(after "$1" $rounds served)" -lt $rounds ]
}

uncached() {
	right "$1"
	once "$1"
	constant "$1"
	[ "$(after "$1" $rounds served)" -ge $(($(after "$1" 6 served) + ${2:-2} * (rounds - 6))) ]
}

@test "Open MPI over UCX registers the heap once, with UCX's cache and without" {
	cached openmpi
	uncached openmpi-direct
}

@test "MPICH over UCX registers the heap once, with UCX's cache and without" {
	cached mpich
	uncached mpich-direct
}

@test "Open MPI over libfabric registers the heap once" {
	cached libfabric
}

# bats test_tags=thorough
@test "with PINALLOC_ACCESS=local they work, with their own registrations" {
	local name
	for name in openmpi mpich libfabric; do
		right $name-local
		[ "$(figure "$results/$name-local.0.json" \
			'.registration.passed_through_reasons["rights beyond PINALLOC_ACCESS"]')" -gt 0 ]
		run ! grep -E 'armed:.*(read|write|atomic)' "$results/$name-local.err"
	done
}

# bats test_tags=thorough
@test "without events UCX's cache notices nothing, and asks for each message" {
	uncached no-events
}

# bats test_tags=thorough
@test "with libfabric's cache disabled, each message is served" {
	uncached disabled 1 # libfabric must not get a key that is in use
}

# --- pools ---

# sent NAME: all arrays arrived, and after a first round none waited for a registration.
sent() {
	ended "$1"
	diff <(sort "$results/$1.out") <(printf 'rank %d rounds 2 wrong 0 registrations 0\n' 0 1)
}

@test "MPI sends NumPy arrays of a pool, and no message waits for a registration" {
	sent pool
}
