#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: a program that allocates far more than it touches runs as without the library. Ahead
# of requests only resident memory is registered, and a request makes no more resident than it asks
# for, plus a few huge pages.
# Only here: a block of many times the memory there is.

load lab

setup_file() {
	vm_options+=(--mem 4G)
	load ../scripts
	guest_variables=(script)
	boot both sparse
}

# both NAME STEPS…: runs these without the library and with it, eager and lazy.
both() {
	local command=("$programs/rdma-script" "$(sparse "${@:2}")")
	attempt "plain-$1" "${command[@]}"
	shimmed "eager-$1" "${command[@]}"
	shimmed "lazy-$1" PINALLOC_REGISTER=lazy "${command[@]}"
}

in_guest() {
	local huge=/sys/kernel/mm/transparent_hugepage/enabled program=$programs/rdma-script
	local register='z=reg b+32G:4K; write z y' at='b+#*343597056'
	local scattered="200 times: fill $at:1 7" is_scattered="200 times: holds $at:1 7"
	local zeros="200 times: zero $at+1:1"

	# By default the kernel refuses a block larger than the machine's memory.
	thorough both refused '?ENOMEM b=malloc 64G'

	echo 1 > /proc/sys/vm/overcommit_memory
	both one-page "b=malloc 64G; $register"
	thorough both one-page-of-calloc "b=calloc 64G; $register" "$zeros"
	attempt plain-front "$program" "${script[front]}"
	shimmed eager-front "$program" "${script[front]/sleep 3000/sleep 3000; await held >= 56M}"
	shimmed lazy-front PINALLOC_REGISTER=lazy "$program" "${script[front]}"
	thorough both reads $'b=calloc 8G\n4096 times: zero b+1M+#*2097152:1'
	echo never > "$huge"
	thorough both scattered-small $'b=calloc 64G\n'"$scattered"$'\n'"$register" "$is_scattered"$'\n'"$zeros"
}

slack=$((64 << 20))

# like_plain NAME: eager and lazy, all is as without the library, and it has no more memory resident, nor more pinned
# than that.
like_plain() {
	local how
	ended "plain-$1"
	for how in eager lazy; do
		ended "$how-$1"
		[ "$(value "$how-$1" resident)" -le $(($(value "plain-$1" resident) + slack)) ]
		[ "$(value "$how-$1" held)" -le $(($(value "$how-$1" resident) + slack)) ]
	done
}

# pins_little NAME: the same, and little is pinned.
pins_little() {
	local how
	like_plain "$1"
	for how in eager lazy; do
		[ "$(value "$how-$1" held)" -le $slack ]
	done
}

@test "registering one page of it registers little else" {
	pins_little one-page
}

# bats test_tags=thorough
@test "so does one page of a block from calloc" {
	pins_little one-page-of-calloc
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
	[ "$(value eager-front held)" -ge $((56 << 20)) ]
	[ "$(value lazy-front held)" -le $slack ]
}

# bats test_tags=thorough
@test "an allocation the machine can never hold may be refused, and does no harm" {
	local how
	for how in plain eager lazy; do
		ended "$how-refused"
		[ "$(value "$how-refused" resident)" -le $((2 * slack)) ]
	done
}
