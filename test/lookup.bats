#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: pinalloc_lookup() returns keys that the adapter accepts, for every block of the heap and
# nothing else, with the guarantees of the header. (The lab tries the same keys on a real device.)

setup_file() {
	load helper
	build_adapter
}

setup() {
	load helper
	lookup=$programs/rdma-lookup
}

@test "the keys transfer random blocks from several threads in two protection domains" {
	succeeds "$lookup" keys
}

@test "the keys transfer blocks of up to 256 MiB" {
	succeeds "$lookup" large
}

@test "pinalloc_lookup refuses memory that is not heap" {
	succeeds "$lookup" outside
}

@test "ranges across blocks have keys, ranges beyond the heap have none" {
	succeeds PINALLOC_REGISTER=lazy "$lookup" edge
}

@test "enable registers resident memory, disable deregisters it, and both can be repeated" {
	succeeds "$lookup" enable
}

@test "enable and look-ups refuse rights that memory regions cannot have" {
	succeeds PINALLOC_ACCESS=local,read "$lookup" rights
}

@test "a protection domain with registrations is busy and usable, and can be deallocated without them" {
	succeeds "$lookup" dealloc
}

@test "with PINALLOC_REGISTER=lazy only requested memory is registered" {
	succeeds PINALLOC_REGISTER=lazy "$lookup" lazy
}

@test "with PINALLOC_REGISTER=off no block has keys" {
	succeeds PINALLOC_REGISTER=off "$lookup" off
}

@test "a program can get statistics and a report at any time" {
	local called=$BATS_TEST_TMPDIR/called.json
	succeeds "$lookup" report "$called"
	[ "$(figure "$called" .registration.mr_created)" -gt 0 ]
	[ "$(figure "$called" .program)" = rdma-lookup ]
}

@test "without the library the functions are absent, and the program notices" {
	run -3 adapted "$lookup" keys
}
