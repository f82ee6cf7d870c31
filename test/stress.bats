#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: whatever threads call of malloc's family, in any order, with forks in between, blocks are
# what a model of them says. STRESS_SECONDS makes it longer.

setup() {
	load helper
}

# stressed SECONDS [NAME=VALUE…]
stressed() {
	run preloaded "${@:2}" "$programs/stress" "$(($1 * ${STRESS_SECONDS:-20} / 20))"
	echo "$*: $output"
	[ "$status" -eq 0 ]
	[[ "$output" =~ ([0-9]+)\ calls,\ ([0-9]+)\ refused ]]
	[ "${BASH_REMATCH[1]}" -gt 1000 ]
}

@test "blocks have the contents, places and sizes of a model, in threads and in children" {
	stressed 10
	[ "${BASH_REMATCH[2]}" -eq 0 ]
}

@test "so they have while allocations are sampled, or filled" {
	stressed 3 PINALLOC_SAMPLE=16K
	stressed 3 MALLOC_PERTURB_=1
}

@test "many threads pass each other blocks, begin, end and fork, and no block is overwritten" {
	run -0 preloaded "$programs/meddle" 8 "$((4 * ${STRESS_SECONDS:-20} / 20))"
	run -0 preloaded "$programs/meddle" 8 "$((4 * ${STRESS_SECONDS:-20} / 20))" fork
	run -0 preloaded PINALLOC_SAMPLE=64K "$programs/meddle" 4 2 fork
}

@test "so they have while memory runs out" {
	ulimit -v 330000
	stressed 4 PINALLOC_LOG=error
}
