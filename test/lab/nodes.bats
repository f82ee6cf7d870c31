#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: on a machine of two memory nodes, pages of the heap are on the node of
# the thread that made it grow, as without the library, whichever thread registers.

setup_file() {
	load ../helper
	load lab
	vm_options=(--numa 2)
	boot
}

in_guest() {
	local program=$programs/rdma-nodes lazy=PINALLOC_REGISTER=lazy

	cat /sys/devices/system/node/node[01]/cpulist > /ctl/processors
	# The kernel's own balancing would move pages to whoever touches them.
	echo 0 > /proc/sys/kernel/numa_balancing
	attempt plain-crosswise "$program" crosswise
	shimmed first "$program" first
	shimmed ahead "$program" ahead
	shimmed ahead-small PINALLOC_HUGEPAGE=off "$program" ahead
	shimmed crosswise "$lazy" "$program" crosswise
	shimmed interleaved "$lazy" python3 -c '
import ctypes, os, sys
# set_mempolicy(MPOL_INTERLEAVE) of both nodes, for the program that is executed.
mask = ctypes.c_ulong(3)
assert not ctypes.CDLL(None).syscall(238, 3, ctypes.byref(mask), ctypes.c_ulong(64))
os.execv(sys.argv[1], sys.argv[1:])' "$program" crosswise

	echo 160 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages
	echo 160 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages
	shimmed hugetlb PINALLOC_HUGEPAGE=hugetlb "$program" ahead
}

setup() {
	load ../helper
	load lab
}

# pages NAME KEY: the figure of one case.
pages() {
	grep -o " $2 [0-9]*" "$results/$1.out" | cut -d' ' -f3
}

# local NAME: a thread's pages are its node's, but for the first ones of a region, which
# may hold the end of another thread's block.
is_local() {
	ended "$1"
	[ "$(pages "$1" own)" -gt $((20 * $(pages "$1" other))) ]
}

@test "the machine has two nodes with a processor each" {
	[ "$(< "$results/processors")" = $'0\n1' ]
}

@test "without the library, who registers decides" {
	ended plain-crosswise
	[ "$(pages plain-crosswise other)" -gt $((20 * $(pages plain-crosswise own))) ]
}

@test "what a thread touches first is on its node" {
	is_local first
}

@test "what is registered ahead, before anybody touches it, is on the node of its thread" {
	is_local ahead
	is_local ahead-small
	is_local hugetlb
	[ "$(wc -c < "$results/hugetlb.err")" -eq 0 ]
}

@test "and what another thread's request registers" {
	is_local crosswise
}

@test "a policy of the process's own stays in force" {
	ended interleaved
	[ "$(pages interleaved own)" -gt $(($(pages interleaved other) / 2)) ]
	[ "$(pages interleaved other)" -gt $(($(pages interleaved own) / 2)) ]
}
