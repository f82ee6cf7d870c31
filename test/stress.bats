#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: whatever threads call of malloc's family, in any order, with forks in between, blocks are
# what a model of them says. STRESS_SECONDS makes it longer.

setup() {
	load helper
}

# stressed SECONDS [NAME=VALUE…]
stressed() {
	run preloaded PINALLOC_REGISTER=off "${@:2}" "$programs/stress" "$(($1 * ${STRESS_SECONDS:-20} / 20))"
	echo "$*: $output"
	[ "$status" -eq 0 ]
	[[ "$output" =~ ([0-9]+)\ calls,\ ([0-9]+)\ refused ]]
	[ "${BASH_REMATCH[1]}" -gt 1000 ]
}

@test "blocks have the contents, places and sizes of a model, in threads and in children" {
	stressed 10
	[ "${BASH_REMATCH[2]}" -eq 0 ]
}

@test "so they have while allocations are sampled, or filled, or threads have no cache" {
	rows stressed <<- 'END'
		3 PINALLOC_SAMPLE=16K
		3 MALLOC_PERTURB_=1
		3 MALLOC_CONF=tcache:false
	END
}

@test "so they have while memory runs out" {
	ulimit -v 330000
	stressed 4 PINALLOC_LOG=error
}
