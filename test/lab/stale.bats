#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: the adapter and the program never see different memory. A registration cache without
# any invalidation is the hardest test.

setup_file() {
	load ../helper
	load lab
	vm_options=("${one_processor[@]}")
	in_guest() {
		local stale=("$programs/rdma-stale" 120)

		known glibc || attempt glibc "${stale[@]}"
		known unmapping || attempt unmapping GLIBC_TUNABLES=glibc.malloc.mmap_threshold=131072 "${stale[@]}"
		shimmed eager "${stale[@]}"
		shimmed lazy PINALLOC_REGISTER=lazy "${stale[@]}"
		shimmed off PINALLOC_REGISTER=off "${stale[@]}"
		known plain-replaced || attempt plain-replaced "$programs/rdma-replaced" 20
		shimmed replaced "$programs/rdma-replaced" 20
		shimmed replaced-lazy PINALLOC_REGISTER=lazy \
			"$programs/rdma-replaced"
		shimmed forked "$programs/rdma-replaced" forked
		mkdir -m 755 /run/public
		cp "$library" "$programs/rdma-replaced" /run/public
		attempt replaced-user setpriv --reuid 65534 --regid 65534 --clear-groups \
			env LD_PRELOAD=/run/public/libpinalloc.so PINALLOC_MAX_PINNED=4M /run/public/rdma-replaced
	}
	boot
}

setup() {
	load ../helper
	load lab
}

@test "with glibc's malloc, a cached registration transfers wrong data" {
	ended glibc
	[ "$(value glibc wrong-sent)" -gt 0 ]
	[ "$(value glibc wrong-received)" -gt 0 ]
}

@test "more of it if glibc unmaps every large block" {
	ended unmapping
	[ "$(value unmapping wrong-sent)" -gt "$(value glibc wrong-sent)" ]
	[ "$(value unmapping wrong-received)" -gt "$(value glibc wrong-received)" ]
}

# all_right CASE: the cache was used as much as without the library, and was right.
all_right() {
	ended "$1"
	[ "$(value "$1" hits)" -ge 50 ]
	[ "$(value "$1" wrong-sent)" -eq 0 ]
	[ "$(value "$1" wrong-received)" -eq 0 ]
}

@test "with the library, a cached registration is always right" {
	all_right eager
	[ "$(reported eager .registration.served)" -gt 0 ]
}

@test "so it is if memory is registered on request" {
	all_right lazy
	[ "$(reported lazy .registration.served)" -gt 0 ]
}

@test "so it is without registration by the library: the heap alone never moves" {
	all_right off
	[ "$(reported off .registration.mr_created)" -eq 0 ]
	[ "$(reported off .registration.served)" -eq 0 ]
}

@test "pages replaced behind malloc are not taken for the old ones" {
	ended plain-replaced
	ended replaced
	ended replaced-lazy
	[ "$(reported replaced \
		'.registration.passed_through_reasons["pages replaced by the program"]')" -eq 320 ]
	[ "$(reported replaced .registration.served)" -ge 100 ]
	[ "$(grep -c '^pinalloc' "$results/replaced.err")" -eq 1 ]
	grep -q 'replaced pages of its heap behind malloc' "$results/replaced.err"
}

@test "nor in a process without privileges" {
	ended replaced-user
	grep -q 'replaced pages of its heap behind malloc' "$results/replaced-user.err"
}

@test "the program has no descriptor of the watch, and no child keeps one" {
	ended forked
	grep -q 'replaced pages of its heap behind malloc' "$results/forked.err"
}
