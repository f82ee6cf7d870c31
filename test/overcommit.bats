#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: where the kernel commits no more memory than there is, the reserved
# addresses count nothing, and what cannot be had is refused when it is asked for.
# Changes vm.overcommit_memory for its duration, hence wants root.

setup() {
	load helper
	overcommit=/proc/sys/vm/overcommit_memory
	before=$(cat "$overcommit")
	too_much=$(awk '/^CommitLimit:/ { print $2 }' /proc/meminfo)
	too_much=$((too_much * 1024))
}

teardown() {
	echo "$before" > "$overcommit"
}

@test "with vm.overcommit_memory=2 programs start and work" {
	echo 2 > "$overcommit"
	run -0 --separate-stderr preloaded bash -c 'for i in {1..1000}; do
		words+=("word $i"); done; echo ${#words[@]}'
	[ "$output" = 1000 ]
	[ -z "$stderr" ]
}

@test "more than the commit limit is refused: NULL, ENOMEM, and all goes on" {
	echo 2 > "$overcommit"
	run -0 preloaded "$programs/exhaust" "$too_much"
	[ "$output" = 0 ]
	run -0 preloaded "$programs/grow" 64
	echo 1 > "$overcommit"
	run -0 preloaded "$programs/grow" 1 "$too_much"
}
