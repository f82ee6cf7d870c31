#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: pinalloc_lookup() returns keys that the adapter accepts, for every block of the heap and
# nothing else, with the guarantees of the header. (The lab tries the same keys on a real device.)
load helper
load scripts

setup_file() {
	allowed memlock
}

# looked_up CASE [NAME=VALUE]
looked_up() {
	succeeds "${@:2}" "$programs/rdma-script" "${script[$1]}"
	[ "$1" != off ] || jq -e '.registration.domains == []' "$report"
}

@test "each case of keys" {
	rows looked_up <<- 'END'
		keys: they transfer random blocks from several threads in two protection domains
		large: they transfer blocks of up to 256 MiB
		outside: pinalloc_lookup refuses memory that is not heap
		edge PINALLOC_REGISTER=lazy: ranges across blocks have keys, ranges beyond the heap have none
		enable: enable registers resident memory, disable deregisters it, and both can be repeated
		few-rights PINALLOC_ACCESS=local,read: rights that memory regions cannot have are refused
		dealloc: a domain with registrations is busy and usable, and can be deallocated without them
		lazy PINALLOC_REGISTER=lazy: only requested memory is registered
		off PINALLOC_REGISTER=off: no block has keys
		errors PINALLOC_LOG=error: what is wrong of a pool or a slice is refused by name
	END
}

@test "a program can get statistics and a report at any time" {
	local called=$BATS_TEST_TMPDIR/called.json
	succeeds "$programs/rdma-script" "$(reporting "$called")"
	jq -e '.registration.mr_created > 0 and .program == "rdma-script"' "$called"
}

@test "free() of a slice says what it is" {
	ends 134 "$programs/rdma-script" "${script[freed]}"
	grep "free(.*): invalid pointer, it is in a pool's memory" <<< "$stderr"
}
