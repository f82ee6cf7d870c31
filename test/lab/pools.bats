#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: slices of a pool are sent from and received into without a registration, by a program
# that asks for keys and by an MPI library that knows nothing of pools, whose program is in Python.

setup_file() {
	load ../helper
	load lab
	vm_options=("${one_processor[@]}")
	boot exchange
}

# exchange NAME [VARIABLE=VALUE…]: NumPy arrays of a pool, with Debian's mpi4py, which has Open MPI.
exchange() {
	local command
	mapfile -t command < <(pair_over_ucx openmpi /usr/bin/python3 "$top_srcdir/preload/python/exchange.py" 2)
	attempt "$1" LD_PRELOAD="$library" PYTHONDONTWRITEBYTECODE=1 "${@:2}" "${command[@]}"
}

in_guest() {
	shimmed keys "$programs/rdma-pool" keys
	exchange cached
	thorough exchange direct "${no_ucx_cache[@]}"
}

setup() {
	load ../helper
	load lab
}

@test "slices have keys in each enabled protection domain, and nothing is registered for them" {
	ended keys
}

# sent NAME: all arrays arrived, and after a first round none waited for a registration.
sent() {
	ended "$1"
	diff <(sort "$results/$1.out") <(printf 'rank %d rounds 2 wrong 0 registrations 0\n' 0 1)
}

@test "MPI sends NumPy arrays of a pool, and no message waits for a registration" {
	sent cached
}

# bats test_tags=thorough
@test "nor without UCX's cache, which then asks for each message" {
	sent direct
}
