#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: on a machine of two memory nodes, pages of the heap are on the node of the
# thread that touches them first, as without the library; what a registration brings in
# untouched is on that of the thread that made the heap grow, whichever thread registers.

setup_file() {
	load ../helper
	load lab
	vm_options=(--numa 2)
	boot
}

in_guest() {
	local program=$programs/rdma-nodes lazy=PINALLOC_REGISTER=lazy way

	cat /sys/devices/system/node/node[01]/cpulist > /ctl/processors
	# The kernel's own balancing would move pages to whoever touches them.
	echo 0 > /proc/sys/kernel/numa_balancing
	attempt plain-crosswise "$program" crosswise
	shimmed first "$program" first
	shimmed first-small PINALLOC_HUGEPAGE=off "$program" first
	for way in touched halves; do
		attempt plain-$way "$program" $way
		shimmed $way "$program" $way
		shimmed $way-small PINALLOC_HUGEPAGE=off "$program" $way
		shimmed $way-lazy $lazy "$program" $way
	done
	shimmed crosswise "$lazy" "$program" crosswise
	shimmed reserve PINALLOC_RESERVE=192M "$programs/rdma-reserve" node
	shimmed interleaved "$lazy" python3 -c '
import ctypes, os, sys
# set_mempolicy(MPOL_INTERLEAVE) of both nodes, for the program that is executed.
mask = ctypes.c_ulong(3)
assert not ctypes.CDLL(None).syscall(238, 3, ctypes.byref(mask), ctypes.c_ulong(64))
os.execv(sys.argv[1], sys.argv[1:])' "$program" crosswise

	echo 160 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages
	echo 160 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages
	shimmed hugetlb PINALLOC_HUGEPAGE=hugetlb "$program" first
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

@test "what a thread allocates and touches is on its node" {
	is_local first
	is_local first-small
	is_local hugetlb
	[ "$(wc -c < "$results/hugetlb.err")" -eq 0 ]
}

@test "what another thread touches first is on the node of that one" {
	is_local plain-touched
	is_local touched
	is_local touched-small
	is_local touched-lazy
}

@test "of a block that two threads touch, each half is on the node of its thread" {
	is_local plain-halves
	is_local halves
	is_local halves-small
	is_local halves-lazy
}

@test "what nobody has touched, and another thread's request registers, is on its thread's" {
	is_local crosswise
}

@test "a policy of the process's own stays in force" {
	ended interleaved
	[ "$(pages interleaved own)" -gt $(($(pages interleaved other) / 2)) ]
	[ "$(pages interleaved other)" -gt $(($(pages interleaved own) / 2)) ]
}

@test "a reserve is on the node of the thread that registers first" {
	is_local reserve
	[ "$(pages reserve absent)" -eq 0 ]
}
