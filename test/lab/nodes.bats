#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: with two memory nodes, heap pages are on the node of the thread that touches them
# first, as without the library. Untouched pages that a registration makes resident are on the node
# of the thread that made the heap grow, whichever thread registers. Free memory goes to threads of
# its node first.
# Only here: two memory nodes.

load lab

setup_file() {
	vm_options=(--smp 2 --numa 2)
	load ../scripts
	guest_variables=(script)
	boot
}

in_guest() {
	local program=$programs/rdma-script lazy=PINALLOC_REGISTER=lazy

	cat /sys/devices/system/node/node[01]/cpulist > /ctl/processors
	# NUMA balancing would move pages to the threads that use them.
	echo 0 > /proc/sys/kernel/numa_balancing
	attempt plain-crosswise "$program" "${script[crosswise]}"
	shimmed first "$program" "${script[first]}"
	shimmed first-small PINALLOC_HUGEPAGE=off "$program" "${script[first]}"
	attempt plain-touched "$program" "${script[touched]}"
	shimmed touched "$program" "${script[touched]}"
	shimmed touched-small PINALLOC_HUGEPAGE=off "$program" "${script[touched]}"
	shimmed touched-lazy $lazy "$program" "${script[touched]}"
	shimmed near "$programs/near" 24 8
	shimmed crosswise "$lazy" "$program" "${script[crosswise]}"
	shimmed reserve PINALLOC_PREALLOC=192M "$program" "${script[reserve]}"
	shimmed interleaved "$lazy" python3 -c '
import ctypes, os, sys
# set_mempolicy(MPOL_INTERLEAVE) on both nodes, for the program that is executed.
mask = ctypes.c_ulong(3)
assert not ctypes.CDLL(None).syscall(238, 3, ctypes.byref(mask), ctypes.c_ulong(64))
os.execv(sys.argv[1], sys.argv[1:])' "$program" "${script[crosswise]}"

	echo 160 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages
	echo 160 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages
	shimmed hugetlb PINALLOC_HUGEPAGE=hugetlb "$program" "${script[first]}"
}

# local NAME: a thread's pages are on its node, except the first ones of a region, which may contain
# the end of another thread's block.
is_local() {
	ended "$1"
	[ "$(value "$1" own)" -gt $((20 * $(value "$1" other))) ]
}

@test "the machine has two nodes with a processor each" {
	[ "$(< "$results/processors")" = $'0\n1' ]
}

@test "without the library, the node of the registering thread decides" {
	ended plain-crosswise
	[ "$(value plain-crosswise other)" -gt $((20 * $(value plain-crosswise own))) ]
}

@test "memory that a thread allocates and touches is on its node" {
	is_local first
	is_local first-small
	is_local hugetlb
	[ "$(wc -c < "$results/hugetlb.err")" -eq 0 ]
}

@test "a thread that frees memory and allocates again gets memory of its node" {
	is_local near
}

@test "memory that another thread touches first is on that thread's node" {
	is_local plain-touched
	is_local touched
	is_local touched-small
	is_local touched-lazy
}

@test "untouched memory that another thread registers is on the allocating thread's node" {
	is_local crosswise
}

@test "a memory policy set by the process stays in force" {
	ended interleaved
	[ "$(value interleaved own)" -gt $(($(value interleaved other) / 2)) ]
	[ "$(value interleaved other)" -gt $(($(value interleaved own) / 2)) ]
}

@test "a reserve is on the node of the thread that registers first" {
	is_local reserve
}
