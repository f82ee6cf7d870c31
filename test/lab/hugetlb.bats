#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: a heap of hugetlb pages is registered and used for transfers as any other, continues
# when there are no more, and returns them when the process ends.

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
	for mode in system thp off; do
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

# pool NAME WHEN: the number of free pages that the case saw.
pool() {
	grep -o "free $2 [0-9]*" "$results/$1.out" | cut -d' ' -f3
}

# says CASE STATUS WHAT REGEX: the check printed exactly one such line.
says() {
	cat "$results/$1.out"
	[ "$(grep -cE "^$(printf '%-4s' "$2")  $3: $4\$" "$results/$1.out")" -eq 1 ]
}

@test "hugetlb: the heap uses the system's huge pages, and the adapter reads and writes them" {
	ended enough
	[ "$(wc -c < "$results/enough.err")" -eq 0 ]
	[ "$(pool enough after)" -le $((300 - 100)) ]
	[ "$(reported enough .registration.passed_through)" -eq 0 ]
	[ "$(reported enough .memory.pinned_peak_bytes)" -ge $((200 << 20)) ]
}

@test "hugetlb: when the pool is exhausted, one line says so and the program continues" {
	ended short
	[ "$(wc -l < "$results/short.err")" -eq 1 ]
	grep -E 'needs [0-9]+ huge pages, but the system has [0-9]+ free:' "$results/short.err"
	[ "$(pool short after)" -lt 100 ]
	[ "$(reported short .registration.passed_through)" -eq 0 ]
	[ "$(reported short .memory.pinned_peak_bytes)" -ge $((900 << 20)) ]
}

@test "hugetlb: so it does if threads grow the heap at the same time" {
	ended threads
	[ "$(wc -l < "$results/threads.err")" -eq 1 ]
	[ "$(value threads pool)" -gt 300 ]
}

@test "hugetlb: pages replaced by the program are noticed" {
	ended replaced
	grep 'replaced pages of its heap behind malloc' "$results/replaced.err"
	[ "$(reported replaced '.registration.passed_through_reasons["pages replaced by the program"]')" -gt 0 ]
}

@test "hugetlb: a forked child has a working heap, and the pages return to the pool at the end" {
	ended forks
	[ "$(< "$results/left")" = 'HugePages_Free:      300' ]
}

@test "hugetlb: fork() with an empty pool behaves as documented" {
	ended fork-plain
	[ "$(< "$results/fork-plain.out")" = 'the child ends by signal 7, status 0' ]
	ended fork-registered
	[ "$(< "$results/fork-registered.out")" = 'fork fails: Cannot allocate memory' ]
}

@test "with transparent_hugepage=always, PINALLOC_HUGEPAGE=off uses none, and others do" {
	ended system-small
	ended off-small
	[ "$(value system-small transparent)" -gt 2 ]
	[ "$(value off-small transparent)" -eq 0 ]
	[ "$(value off-large transparent)" -eq 0 ]
	[ "$(value thp-small transparent)" -gt 4 ]
	[ "$(value system-large transparent)" -gt 240 ]
	[ "$(value thp-large transparent)" -gt 250 ]
	ended never
	[ "$(value never transparent)" -eq 0 ]
}

@test "with transparent_hugepage=always, an idle process has them in its heap, and in no table" {
	[ "$(grep -cE '^AnonHugePages: *(0|2048|4096) kB$' "$results/started")" -eq 8 ]
}

@test "registering resident huge pages is faster than small ones" {
	local off thp
	off=$(value off-registering ms)
	thp=$(value thp-registering ms)
	echo "off $off ms, thp $thp ms"
	[ "$thp" -lt "$off" ]
}

@test "pinalloc check reports missing huge pages" {
	says check ok 'huge pages' 'the heap gets (huge pages, which register fastest|small pages, .*)'
	says check-hugetlb ok environment '.*'
	says check-empty warn environment 'the heap needs .* huge pages, but the system has .* free.*vm.nr_hugepages.*'
	says check-never warn 'huge pages' 'the heap gets small pages, .* says never'
}
