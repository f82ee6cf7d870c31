#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: it does not matter which registration cache an MPI library has, nor how it learns of
# unmapped memory. The data is right, and each region is registered once.

setup_file() {
	load ../helper
	load lab
	build_mpi exchange
	build_count_reg
	"$top_srcdir/test/lab/stale-cases" build "$BATS_FILE_TMPDIR"
	vm_options=("${one_processor[@]}")
	guest_variables=(rounds)
	boot with over_ucx over_libfabric
}

# Each round is a message of up to 2 MB, sent by both ranks in turn.
rounds=24

# with NAME VARIABLE=VALUE… COMMAND…: runs a case with the library, and a report for each rank.
with() {
	local name=$1
	shift
	attempt "$name" LD_PRELOAD="$library" PINALLOC_REPORT="/ctl/$name.%r.json" "$@"
}

# over_ucx HOW NAME [VARIABLE=VALUE…]: runs $job with Open MPI over UCX; HOW is with or counted.
over_ucx() {
	local command
	mapfile -t command < <(pair_over_ucx openmpi "${job[@]}")
	"$1" "$2" "${@:3}" "${command[@]}"
}

# over_libfabric HOW NAME MONITOR: the same over libfabric's verbs, with libfabric monitoring
# mappings itself: Open MPI's memory component would do it otherwise.
over_libfabric() {
	local command
	mapfile -t command < <(pair_over_libfabric "${job[@]}")
	"$1" "$2" FI_MR_CACHE_MONITOR="$3" OMPI_MCA_memory=^patcher "${command[@]}"
}

in_guest() {
	local monitor command
	local job=("$BATS_FILE_TMPDIR/exchange.openmpi" "$rounds" 2000000)

	over_ucx counted plain-default
	over_ucx counted plain-direct "${no_ucx_cache[@]}"
	over_ucx with default
	over_ucx with direct "${no_ucx_cache[@]}"
	over_ucx with no-events UCX_MEM_EVENTS=n
	over_ucx with no-patcher OMPI_MCA_memory=^patcher
	over_ucx with checked UCX_RCACHE_CHECK_PFN=1024
	over_ucx with reloc UCX_MEM_MMAP_HOOK_MODE=reloc
	over_ucx with reloc-cured UCX_MEM_MMAP_HOOK_MODE=reloc UCX_MEM_MALLOC_RELOC=no
	mapfile -t command < <(pair_over_ucx mpich "$BATS_FILE_TMPDIR/exchange.mpich" "$rounds" 2000000)
	with mpich "${command[@]}"
	for monitor in memhooks userfaultfd disabled; do
		over_libfabric with $monitor $monitor
	done

	job=("$BATS_FILE_TMPDIR/mpi-stale.openmpi" mmap-fixed/raw:send mmap-fixed/raw:receive
		free+malloc:send free+malloc:receive free+calloc:send free+calloc:receive)
	for monitor in memhooks userfaultfd disabled; do
		over_libfabric with stale-$monitor $monitor
	done
	over_libfabric counted plain-stale memhooks
	job=("$BATS_FILE_TMPDIR/mpi-stale.openmpi" blind free+malloc:send free+malloc:receive
		free+calloc:send free+calloc:receive)
	local unheard=(UCX_MEM_MMAP_HOOK_MODE=none UCX_RCACHE_CHECK_PFN=1024
		GLIBC_TUNABLES=glibc.malloc.mmap_threshold=131072 OMPI_MCA_memory=^patcher)
	over_ucx counted blind-without "${unheard[@]}"
	over_ucx with blind-with "${unheard[@]}"
}

setup() {
	load ../helper
	load lab
}

# right NAME: the job ran, and every word arrived.
right() {
	ended "$1"
	grep -qx "rounds $rounds wrong 0" "$results/$1.out"
}

# once NAME: the heap was registered as it grew, at most a few times for each step, never for a
# message, and no heap request went to libibverbs.
once() {
	local rank report

	for rank in 0 1; do
		report=$results/$1.$rank.json
		[ "$(figure "$report" .rank)" -eq $rank ]
		[ "$(figure "$report" .registration.mr_created)" -gt 0 ]
		[ "$(figure "$report" .registration.served)" -gt 0 ]
		[ "$(figure "$report" '.registration.mr_created <=
			.memory.regions * (.registration.domains | length)')" = true ]
		[ "$(of_the_heap "$report")" = "{}" ]
		[ "$(figure "$report" .registration.evicted)" -eq 0 ]
		[ "$(figure "$report" .registration.refused)" -eq 0 ]
	done
}

# served NAME: requests of both ranks were served.
served() {
	jq -s 'map(.registration.served) | add' "$results/$1.0.json" "$results/$1.1.json"
}

# cached NAME, uncached NAME: with a cache there are a few requests; without one, a request for
# every message in each rank.
cached() {
	right "$1"
	once "$1"
	[ "$(served "$1")" -lt $rounds ]
}

uncached() {
	right "$1"
	once "$1"
	[ "$(served "$1")" -ge $((2 * rounds)) ]
}

# registrations NAME: the number of registrations in a job without the library.
registrations() {
	awk '/^registrations / { n += $4 } END { print n }' "$results/$1.err"
}

# outcomes NAME PATTERN: results of the cases of mpi-stale that match.
outcomes() {
	cat "$results/$1.out" >&2
	awk -v pattern="$2" '$1 ~ pattern { print $3 }' "$results/$1.out" | sort | uniq -c |
		awk '{ print $1, $2 }'
}

@test "modes with UCX's cache, notified by Open MPI's hooks or its own, send the right data" {
	cached default
	cached no-patcher
	cached mpich
}

@test "modes without UCX's cache send the right data" {
	uncached direct
	uncached no-events
}

@test "without the library these modes register for every message" {
	right plain-default
	right plain-direct
	[ "$(registrations plain-direct)" -ge $((2 * rounds)) ]
	[ "$(registrations plain-direct)" -gt $(($(registrations plain-default) + rounds)) ]
}

@test "modes with libfabric's cache, notified by the library, send the right data" {
	cached memhooks
	cached userfaultfd
}

@test "so do modes in which the user disables it" {
	uncached disabled
}

@test "libfabric's hooks miss calls that bypass libc; with the library the data is right" {
	[ "$(outcomes plain-stale raw)" = "2 corrupt" ]
	local monitor
	for monitor in memhooks userfaultfd disabled; do
		ended stale-$monitor
		[ "$(outcomes stale-$monitor ^free)" = "4 right" ]
	done
	[ "$(outcomes stale-memhooks raw)" = "2 right" ]
	[ "$(outcomes stale-userfaultfd raw)" = "2 right" ]
	[ "$(outcomes stale-disabled raw)" = "2 right" ]
}

@test "UCX's own check finds no moved page of the heap" {
	cached checked
	ended blind-with
	[ "$(outcomes blind-with ^free)" = "4 right" ]
	once blind-with
}

@test "without the library it does, or data is stale, if nothing reports unmapped memory" {
	# UCX 1.13 ends the job; 1.18 did not notice.
	ended blind-without && [ "$(outcomes blind-without ^free)" = "4 corrupt" ] ||
		grep -q 'page at virtual address .* moved from pfn' "$results/blind-without.err"
}

@test "the mode in which UCX replaces malloc is reported once for each rank, with the cure" {
	local line='UCX_MEM_MMAP_HOOK_MODE=reloc lets UCX replace malloc .* set UCX_MEM_MALLOC_RELOC=n'

	right reloc
	[ "$(grep -c "^pinalloc.*: $line\$" "$results/reloc.err")" -eq 2 ]
	right reloc-cured
	once reloc-cured
	run ! grep '^pinalloc' "$results/reloc-cured.err"
}
