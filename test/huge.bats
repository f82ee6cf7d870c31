#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: a heap uses huge pages as PINALLOC_HUGEPAGE says, if the system has them, is a handful of
# mappings all the same, and works if the system has none.
load helper

setup() {
	pages=/sys/kernel/mm/transparent_hugepage/enabled
	grep -qE '\[(always|madvise)\]' "$pages" # or the tests below say nothing
}

# held NAME=VALUE ARGUMENT…: runs the program that prints how its heap is mapped; it must print
# nothing else.
held() {
	run -0 --separate-stderr preloaded "$1" "$programs/huge" "${@:2}"
	echo "$*: ${lines[*]}; said: $stderr"
	[ -z "$stderr" ]
}

# value KEY: a number that it printed.
value() {
	grep "^$1 " <<< "$output" | cut -d' ' -f2
}

@test "thp: touched memory is in huge pages, except a remainder" {
	held PINALLOC_HUGEPAGE=thp 64 4
	[ "$(value transparent)" -gt 60 ]
	held PINALLOC_HUGEPAGE=thp 8 4
	[ "$(value transparent)" -gt 4 ]
}

# Where the system has them on request, a page of a sparse array takes a page.
@test "system: pages are huge where the system makes them so, and nothing is requested" {
	held PINALLOC_HUGEPAGE=system 64 4
	if grep -q '\[always\]' "$pages"; then
		[ "$(value transparent)" -gt 60 ]
	else
		[ "$(value transparent)" -eq 0 ]
	fi
	run -0 strace -f -E LD_PRELOAD="$library" -e trace=madvise "$programs/huge" 64 4
	[[ "$output" != *MADV_HUGEPAGE* ]]
}

# MiB and sizes of written blocks, of blocks behind them, and the bytes of these that are written.
@test "dense: written memory is huge, and sparse memory takes a tenth more at most" {
	local way n=() small
	for way in system dense; do
		run -0 preloaded PINALLOC_HUGEPAGE=$way "$programs/dense" 1 128 100 0 4096 0
		echo "$way: $output"
		n+=("$output")
	done
	# A third of the page faults, at most.
	[ "${n[1]##* }" -lt $((${n[0]##* } / 3)) ]
	while read -ra way; do
		run -0 preloaded PINALLOC_HUGEPAGE=system "$programs/dense" "${way[@]}"
		small=${output%% *}
		run -0 preloaded PINALLOC_HUGEPAGE=dense "$programs/dense" "${way[@]}"
		echo "${way[*]}: $small, $output"
		[ "${output%% *}" -le $((small + small / 10)) ]
	done <<- end
		1 6 100 256 262144 1
		1 24 100 40 8192 410
		1 64 100 256 65536 1
		1 64 14000 40 14000 701
		1 64 1000 256 3145728 100000
		1 64 1000 1024 1073741824 4096
		20 3 100 6 1048576 100
		20 8 100 6 65536 3277
	end
}

@test "off: no huge pages are used" {
	held PINALLOC_HUGEPAGE=off 64 4
	[ "$(value transparent)" -eq 0 ]
}

# bats test_tags=slow
@test "a heap of any size and number of arenas is a handful of mappings" {
	# A mapping for each growth step of a heap of 1 GiB, or for each block, would be 20 and more.
	local way few more=10
	for way in off system dense thp; do
		held PINALLOC_HUGEPAGE=$way 1 4
		few=$(value mappings)
		held PINALLOC_HUGEPAGE=$way 1024 1024
		[ "$(value mappings)" -le $((few + more)) ]
		held PINALLOC_HUGEPAGE=$way 1024 1024 8
		# Eight stacks, each with a guard page.
		[ "$(value mappings)" -le $((few + more + 16)) ]
	done
}

@test "the tables of the heap have small pages" {
	run -0 strace -f -E LD_PRELOAD="$library" -e trace=madvise "$programs/grow" 1
	local tables
	# And the library's own variables, if jemalloc makes them as large as a huge page.
	tables=$(size -A "$library" | awk '$1 == ".bss" { print ($2 >= 2097152) }')
	[ "$(grep -c 'MADV_NOHUGEPAGE) = 0' <<< "$output")" -ge $((1 + tables)) ]
	[[ "$output" != *MADV_HUGEPAGE* ]]
}

# The pool belongs to the machine; test/lab has one of its own.
@test "hugetlb: if the pool is empty, there is one line, and transparent huge pages are used" {
	[ "$(< /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)" -eq 0 ]
	run -0 --separate-stderr preloaded PINALLOC_HUGEPAGE=hugetlb "$programs/huge" 64 4 4
	echo "$output; said: $stderr"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ "$stderr" =~ ^pinalloc\[[0-9]+\]:\ the\ heap\ needs\ [0-9]+\ huge\ pages?.*\ has\ 0\ free:.*vm.nr_hugepages$ ]]
	[ "$(value transparent)" -gt 60 ]
	[ "$(value pool)" -eq 0 ]
	run -0 --separate-stderr preloaded PINALLOC_HUGEPAGE=hugetlb PINALLOC_LOG=error \
		"$programs/churn" $((64 << 20))
	[ -z "$stderr" ]
}
