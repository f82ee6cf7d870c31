#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: a key has exactly the requested rights. With PINALLOC_ACCESS=local a remote key gives
# access to exactly the requested range, and to nothing after ibv_dereg_mr; without it, pinalloc(7)
# describes the limits.

setup_file() {
	load ../helper
	load lab
	vm_options=("${one_processor[@]}")
	boot
}

in_guest() {
	local rights=$programs/rdma-rights

	known plain-exact || attempt plain-exact "$rights" exact
	shimmed exact "$rights" exact
	shimmed exact-lazy PINALLOC_REGISTER=lazy "$rights" exact
	shimmed region "$rights" region
	known plain-outside || attempt plain-outside "$rights" outside
	shimmed outside PINALLOC_ACCESS=local "$rights" outside
	shimmed exact-local PINALLOC_ACCESS=local "$rights" exact
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
	[ "$(reported exact '.registration | .mr_created - .mr_ahead')" -eq 10 ]
	[ "$(reported exact '.registration.passed_through_reasons["remote writing without local"]')" -eq 1 ]
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
