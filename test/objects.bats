#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: where an adapter is full, by a limit that it does not tell, no registration, completion queue,
# queue pair or other object is refused because of memory regions that nobody uses. (The lab tries it in a control group.)

setup_file() {
	load helper
	build_adapter
}

setup() {
	load helper
	objects=$programs/rdma-objects
}

# as_many KIND: with the library there are as many as without, and memory regions went for them.
as_many() {
	run -0 adapted FAKE_MOST_OBJECTS=8 "$objects" "$1"
	local plain=$output
	[[ "$plain" = "$1 "[1-9]* ]]
	succeeds FAKE_MOST_OBJECTS=8 "$objects" "$1"
	[ "$output" = "$plain" ]
	[ "$(figure "$report" .registration.evicted)" -gt 0 ]
	[ "$(figure "$report" .registration.served)" -eq 4 ]
}

@test "as many objects as without the library" {
	rows as_many <<- 'END'
		cq: completion queues
		qp: queue pairs
		srq: shared receive queues
		ah: address handles
		mw: memory windows, which a function of the context makes
		comp_cntr: completion counters, which newer releases of libibverbs have
	END
}

@test "larger completion queues" {
	run -0 adapted FAKE_MOST_OBJECTS=2 "$objects" resize
	[ "$output" = 'resize 64: enough' ]
	succeeds FAKE_MOST_OBJECTS=2 "$objects" resize
	[ "$output" = 'resize 64: enough' ]
}

@test "registrations of mappings, where the adapter has room for 32 MiB" {
	run -0 adapted FAKE_MOST_BYTES=$((32 << 20)) "$objects" mr
	[ "$output" = 'mr 32: Cannot allocate memory' ]
	succeeds FAKE_MOST_BYTES=$((32 << 20)) "$objects" mr
	[ "$output" = 'mr 32: Cannot allocate memory' ]
	[ "$(figure "$report" .registration.evicted)" -gt 0 ]
	[ "$(figure "$report" .registration.served)" -eq 4 ]
}
