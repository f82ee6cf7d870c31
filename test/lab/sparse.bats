#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: a program that allocates far more than it touches runs as without the library. Ahead
# of requests only resident memory is registered, and a request makes no more resident than it asks
# for, plus a few huge pages.

load lab

setup_file() {
	vm_options+=(--mem 4G)
	boot both at_once
}

# both NAME WORD…: runs the program without the library and with it, eager and lazy.
both() {
	local name=$1 sparse=$programs/rdma-sparse
	shift
	control "plain-$name" "$sparse" "$@"
	shimmed "eager-$name" "$sparse" "$@"
	shimmed "lazy-$name" PINALLOC_REGISTER=lazy "$sparse" "$@"
}

# at_once HOW …: two processes in parallel, HOW-0 and HOW-1.
at_once() {
	local how=$1 i
	shift
	for i in 0 1; do
		"$1" "$how-$i" "${@:2}" &
	done
	wait
}

in_guest() {
	local huge=/sys/kernel/mm/transparent_hugepage/enabled sparse=$programs/rdma-sparse

	# By default the kernel refuses a block larger than the machine's memory.
	thorough both refused 65536
	thorough at_once plain-pair control "$sparse" 3072
	thorough at_once eager-pair shimmed "$sparse" 3072
	thorough at_once lazy-pair shimmed PINALLOC_REGISTER=lazy "$sparse" 3072 register

	echo 1 > /proc/sys/vm/overcommit_memory
	thorough both malloc 65536
	thorough both calloc 65536 calloc
	both one-page 65536 register
	thorough both one-page-of-calloc 65536 calloc register
	thorough both scattered 65536 scattered register
	control plain-front "$sparse" 1024 front
	shimmed eager-front "$sparse" 1024 front ahead
	shimmed lazy-front PINALLOC_REGISTER=lazy "$sparse" 1024 front
	thorough both reads 8192 calloc reads
	echo never > "$huge"
	thorough both scattered-small 65536 calloc scattered register
}

slack=$((64 * 1024)) # KiB

# like_plain NAME: eager and lazy, it ended, printed the same as without the library except for its memory, and
# has no more memory resident, nor more pinned than that.
like_plain() {
	local how
	ended "plain-$1"
	for how in eager lazy; do
		ended "$how-$1"
		diff <(grep -v '^resident' "$results/plain-$1.out") <(grep -v '^resident' "$results/$how-$1.out")
		[ "$(value "$how-$1" resident)" -le $(($(value "plain-$1" resident) + slack)) ]
		[ "$(value "$how-$1" pinned)" -le $(($(value "$how-$1" resident) + slack)) ]
	done
}

# pins_little NAME: the same, and little is pinned.
pins_little() {
	local how
	like_plain "$1"
	for how in eager lazy; do
		[ "$(value "$how-$1" pinned)" -le $slack ]
	done
}

# bats test_tags=thorough
@test "an untouched block of sixteen times the machine's memory costs nothing" {
	pins_little malloc
	grep -qx 'block 0 adapter unasked small right' "$results/eager-malloc.out"
}

# bats test_tags=thorough
@test "nor does one from calloc" {
	pins_little calloc
}

@test "registering one page of it registers little else" {
	pins_little one-page
	grep -qx 'block 0 adapter right small right' "$results/eager-one-page.out"
}

# bats test_tags=thorough
@test "nor does one page of a block from calloc" {
	pins_little one-page-of-calloc
	grep -qx 'block 0 adapter right small right' "$results/eager-one-page-of-calloc.out"
}

# bats test_tags=thorough
@test "so it does with hundreds of huge pages of it touched" {
	like_plain scattered
	grep -qx 'block 0 adapter right small right' "$results/eager-scattered.out"
}

# bats test_tags=thorough
@test "so it does with hundreds of small pages of it touched" {
	pins_little scattered-small
}

# bats test_tags=thorough
@test "reading it does not give it memory" {
	pins_little reads
}

@test "touched pages are registered ahead, except in lazy mode" {
	like_plain front
	[ "$(value eager-front pinned)" -ge $((56 * 1024)) ]
	[ "$(value lazy-front pinned)" -le $slack ]
}

# bats test_tags=thorough
@test "two processes can each have three quarters of the machine's memory untouched" {
	local i how
	for i in 0 1; do
		for how in plain eager lazy; do
			ended "$how-pair-$i"
			[ "$(value "$how-pair-$i" resident)" -le $((2 * slack)) ]
		done
		grep -qx 'block 0 adapter unasked small right' "$results/plain-pair-$i.out"
		grep -qx 'block 0 adapter unasked small right' "$results/eager-pair-$i.out"
		grep -qx 'block 0 adapter right small right' "$results/lazy-pair-$i.out"
		[ "$(value "eager-pair-$i" pinned)" -le $slack ]
		[ "$(value "lazy-pair-$i" pinned)" -le $slack ]
	done
}

# bats test_tags=thorough
@test "an allocation the machine can never hold may be refused, and does no harm" {
	local how resident
	for how in plain eager lazy; do
		ended "$how-refused"
		grep -qE '^block 0 adapter unasked small right$|Cannot allocate memory$' \
			"$results/$how-refused.out"
		resident=$(value "$how-refused" resident)
		[ "${resident:-0}" -le $((2 * slack)) ]
	done
}
