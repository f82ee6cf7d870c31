#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: a heap is of huge pages where PINALLOC_HUGEPAGE says so and the system has
# them, is a handful of mappings all the same, and works where the system has none.

setup() {
	load helper
	pages=/sys/kernel/mm/transparent_hugepage/enabled
	grep -qE '\[(always|madvise)\]' "$pages" # or the tests below say nothing
}

# seen ORDER COMMAND…: as in a virtual machine whose free blocks of 4 KiB << ORDER the host takes
# back. On another machine, and where none is taken, the kernel shows more than any there are.
seen() {
	if [ ! -e $setting ]; then
		"${@:2}"
		return
	fi
	echo "$1" > "$BATS_TEST_TMPDIR/order"
	unshare -rm sh -c 'mount --bind "$1" "$2" && shift 2 && exec "$@"' \
		sh "$BATS_TEST_TMPDIR/order" $setting "${@:2}"
}
none=4294967295
setting=/sys/module/page_reporting/parameters/page_reporting_order # since Linux 5.14

# held NAME=VALUE ARGUMENT…: runs the program that says what its heap is made of, silently.
held() {
	run -0 --separate-stderr seen "${order:-$none}" \
		env LD_PRELOAD="$library" "$1" "$programs/huge" "${@:2}"
	echo "$*: ${lines[*]}; said: $stderr"
	[ -z "$stderr" ]
}

# value KEY: a number of what it said.
value() {
	grep "^$1 " <<< "$output" | cut -d' ' -f2
}

@test "thp: what is touched is in huge pages, but a rest" {
	held PINALLOC_HUGEPAGE=thp 256 4
	[ "$(value transparent)" -gt 250 ]
	held PINALLOC_HUGEPAGE=thp 8 4
	[ "$(value transparent)" -gt 4 ]
}

@test "auto: a small heap is in small pages, of a large one all but the first 32 MiB" {
	held PINALLOC_HUGEPAGE=auto 16 4
	[ "$(value transparent)" -eq 0 ]
	held PINALLOC_HUGEPAGE=auto 256 4
	[ "$(value transparent)" -gt 218 ]
	[ "$(value transparent)" -lt 256 ]
	held PINALLOC_LOG=warn 256 4
	[ "$(value transparent)" -gt 218 ]
}

@test "auto, where the host takes free memory back: nothing is in huge pages, unless asked for" {
	[ -e $setting ] || skip "this kernel does not say what the host takes back"
	order=9
	held PINALLOC_HUGEPAGE=auto 256 4
	[ "$(value transparent)" -eq 0 ]
	held PINALLOC_HUGEPAGE=thp 256 4
	[ "$(value transparent)" -gt 250 ]
	order=11
	held PINALLOC_HUGEPAGE=auto 256 4
	[ "$(value transparent)" -gt 218 ]
}

@test "off: nothing is in huge pages" {
	held PINALLOC_HUGEPAGE=off 256 4
	[ "$(value transparent)" -eq 0 ]
}

@test "whatever the heap grows to, in however many arenas, it is a handful of mappings" {
	local way few
	for way in off auto thp; do
		held PINALLOC_HUGEPAGE=$way 1 4
		few=$(value mappings)
		held PINALLOC_HUGEPAGE=$way 1024 1024
		[ "$(value mappings)" -le $((few + 3)) ]
		held PINALLOC_HUGEPAGE=$way 1024 1024 8
		# Seven stacks, each with a guard page, and the threads' arenas.
		[ "$(value mappings)" -le $((few + 3 + 14)) ]
	done
}

@test "no page is huge unless it is asked for, wherever the tables of the heap are" {
	run -0 strace -f -E LD_PRELOAD="$library" -e trace=mmap,madvise "$programs/grow" 1
	local reserved
	reserved=$(grep -c 'PROT_NONE, .*MAP_NORESERVE, -1' <<< "$output")
	[ "$reserved" -ge 1 ]
	# And the library's own tables.
	[ "$(grep -c 'MADV_NOHUGEPAGE) = 0' <<< "$output")" -eq $((reserved + 1)) ]
	[[ "$output" != *MADV_HUGEPAGE* ]]
}

# Pages of the pool are the machine's; test/lab has a pool of its own.
@test "hugetlb, where the pool is empty: one line, and transparent ones" {
	[ "$(< /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)" -eq 0 ]
	run -0 --separate-stderr preloaded PINALLOC_HUGEPAGE=hugetlb "$programs/huge" 256 4 4
	echo "$output; said: $stderr"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ "$stderr" =~ ^pinalloc\[[0-9]+\]:\ the\ heap\ wants\ [0-9]+\ huge\ pages?.*\ has\ 0\ free:.*vm.nr_hugepages$ ]]
	[ "$(value transparent)" -gt 240 ]
	[ "$(value pool)" -eq 0 ]
	run -0 --separate-stderr preloaded PINALLOC_HUGEPAGE=hugetlb PINALLOC_LOG=error \
		"$programs/churn" $((64 << 20))
	[ -z "$stderr" ]
}

@test "hugetlb, where the pool is empty: no hole stays in the reserved addresses" {
	run -0 --separate-stderr preloaded PINALLOC_HUGEPAGE=hugetlb PINALLOC_LOG=error \
		cat /proc/self/maps
	# The reserved range has not a gap: 16 TiB, and what its start is aligned by.
	local most=0 start=0 end=0 from to rights rest
	while IFS=' -' read -r from to rights rest; do
		[[ $rest == *' 0 ' || $rest == *' 0' ]] || continue
		[ $((0x$from)) -eq "$end" ] || start=$((0x$from))
		end=$((0x$to))
		[ $((end - start)) -le "$most" ] || most=$((end - start))
	done <<< "$output"
	echo "largest range: $most"
	[ "$most" -ge $(((1 << 44) + (1 << 21))) ]
}
