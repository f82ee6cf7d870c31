#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: a heap of the system's huge pages is registered and moved as any other,
# goes on when there are no more, and gives them back when the process ends.

setup_file() {
	load ../helper
	load lab
	boot
}

in_guest() {
	local i program=$programs/rdma-huge way=/sys/kernel/mm/transparent_hugepage/enabled

	echo 300 > /proc/sys/vm/nr_hugepages
	shimmed enough PINALLOC_HUGEPAGE=hugetlb "$program" 200
	shimmed short PINALLOC_HUGEPAGE=hugetlb "$program" 900
	shimmed replaced PINALLOC_HUGEPAGE=hugetlb "$program" replaced 32
	shimmed forks PINALLOC_HUGEPAGE=hugetlb "$programs/forks"
	attempt threads LD_PRELOAD="$library" PINALLOC_HUGEPAGE=hugetlb "$programs/huge" 1200 4 8
	attempt check "${programs%/test/programs}/pinalloc" check
	attempt check-hugetlb PINALLOC_HUGEPAGE=hugetlb "${programs%/test/programs}/pinalloc" check
	grep HugePages_Free /proc/meminfo > /ctl/left
	attempt fork-plain LD_PRELOAD="$library" PINALLOC_HUGEPAGE=hugetlb "$program" fork plain
	echo 300 > /proc/sys/vm/nr_hugepages
	attempt fork-registered LD_PRELOAD="$library" PINALLOC_HUGEPAGE=hugetlb "$program" fork registered
	echo 0 > /proc/sys/vm/nr_hugepages
	attempt check-empty PINALLOC_HUGEPAGE=hugetlb "${programs%/test/programs}/pinalloc" check
	echo never > "$way"
	attempt check-never PINALLOC_HUGEPAGE=thp "${programs%/test/programs}/pinalloc" check
	attempt never LD_PRELOAD="$library" PINALLOC_HUGEPAGE=thp "$programs/huge" 256 4
	echo always > "$way"
	for i in {1..8}; do
		LD_PRELOAD=$library cat /proc/self/smaps_rollup
	done > /ctl/started
	for mode in auto thp off; do
		attempt "$mode-small" LD_PRELOAD="$library" PINALLOC_HUGEPAGE=$mode "$programs/huge" 8 4
		attempt "$mode-large" LD_PRELOAD="$library" PINALLOC_HUGEPAGE=$mode "$programs/huge" 256 4
		attempt "$mode-registering" LD_PRELOAD="$library" PINALLOC_HUGEPAGE=$mode \
			PINALLOC_REGISTER=lazy "$program" time 512
	done
}

setup() {
	load ../helper
	load lab
}

# pool NAME WHEN: free pages, as the case saw them.
pool() {
	grep -o "free $2 [0-9]*" "$results/$1.out" | cut -d' ' -f3
}

# says CASE STATUS WHAT REGEX: there is one such line of the check.
says() {
	cat "$results/$1.out"
	[ "$(grep -cE "^$(printf '%-4s' "$2")  $3: $4\$" "$results/$1.out")" -eq 1 ]
}

@test "hugetlb: the heap takes the system's pages, and the adapter copies them" {
	ended enough
	[ "$(wc -c < "$results/enough.err")" -eq 0 ]
	[ "$(pool enough after)" -le $((300 - 100)) ]
	[ "$(reported enough .registration.passed_through)" -eq 0 ]
	[ "$(reported enough .memory.pinned_peak_bytes)" -ge $((200 << 20)) ]
}

@test "hugetlb: when the pool runs out one line says so and all goes on" {
	ended short
	[ "$(wc -l < "$results/short.err")" -eq 1 ]
	grep -E 'wants [0-9]+ huge pages and the system has [0-9]+ free:' "$results/short.err"
	[ "$(pool short after)" -lt 100 ]
	[ "$(reported short .registration.passed_through)" -eq 0 ]
	[ "$(reported short .memory.pinned_peak_bytes)" -ge $((900 << 20)) ]
}

@test "hugetlb: the same in threads that grow the heap at once" {
	ended threads
	[ "$(wc -l < "$results/threads.err")" -eq 1 ]
	[ "$(value threads pool)" -gt 300 ]
}

@test "hugetlb: pages that the program replaces behind malloc are noticed" {
	ended replaced
	grep 'replaced pages of its heap behind malloc' "$results/replaced.err"
	[ "$(reported replaced '.registration.passed_through_reasons["pages replaced by the program"]')" -gt 0 ]
}

@test "hugetlb: a forked child has a working heap, and the pool its pages in the end" {
	ended forks
	[ "$(< "$results/left")" = 'HugePages_Free:      300' ]
}

@test "hugetlb: what fork() does when the pool is empty is what the documents say" {
	ended fork-plain
	[ "$(< "$results/fork-plain.out")" = 'the child ends by signal 7, status 0' ]
	ended fork-registered
	[ "$(< "$results/fork-registered.out")" = 'fork fails: Cannot allocate memory' ]
}

@test "where huge pages are the rule, small heaps and PINALLOC_HUGEPAGE=off have none" {
	ended auto-small
	ended off-small
	[ "$(value auto-small transparent)" -eq 0 ]
	[ "$(value off-small transparent)" -eq 0 ]
	[ "$(value off-large transparent)" -eq 0 ]
	[ "$(value thp-small transparent)" -gt 4 ]
	[ "$(value auto-large transparent)" -gt 218 ]
	[ "$(value thp-large transparent)" -gt 250 ]
	ended never
	[ "$(value never transparent)" -eq 0 ]
}

@test "where huge pages are the rule, a process that does nothing has none" {
	[ "$(grep -c '^AnonHugePages: *0 kB$' "$results/started")" -eq 8 ]
}

@test "registering touched huge pages takes less time" {
	local off thp
	off=$(value off-registering ms)
	thp=$(value thp-registering ms)
	echo "off $off ms, thp $thp ms"
	[ "$thp" -lt "$off" ]
}

@test "pinalloc check says what the system lacks of what is asked for" {
	says check ok hugetlb '600\.0 MiB of memory is set apart and free, and of no use to the heap'
	says check ok 'huge pages' 'the heap gets huge pages, which register fastest, once it is large'
	says check-hugetlb ok hugetlb '600\.0 MiB of memory is set apart and free, for all heaps here'
	says check-empty warn hugetlb 'PINALLOC_HUGEPAGE=hugetlb, but no such page is free.*vm.nr_hugepages.*'
	says check-never warn 'huge pages' 'never: the heap gets small pages .*; echo madvise > .*'
}
