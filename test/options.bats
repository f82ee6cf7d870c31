#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: options behave as PINALLOC_HELP=1 says; a mistake costs one line, not the program.
load helper
load job

@test "options take the values in their row; a mistake costs a line, and changes nothing else" {
	transcript options
}

@test "PINALLOC_HELP=1 prints all options and ends any program" {
	local name
	run -0 preloaded PINALLOC_HELP=1 bash -c 'echo not reached'
	[[ "$output" != *reached* ]]
	[ "$(grep -c '^[PM]' <<< "$output")" -eq \
		"$(grep -c '^OPTION(' "$top_srcdir/allocator/options.def")" ]
	for name in $(sed -nE 's/^OPTION\(.*"((PIN|M)ALLOC_[A-Z_]+)", .*/\1/p' "$top_srcdir/allocator/options.def"); do
		[[ "$output" == *"$name "* ]]
	done
	run -0 --separate-stderr preloaded PINALLOC_HELP=1 /bin/false
	[ -z "$stderr" ]
}

@test "PINALLOC_PROGRAMS limits registration to the programs it names" {
	allowed memlock
	load scripts
	succeeds PINALLOC_PROGRAMS='rdma-*t' "$programs/rdma-script" "$(filling 'make qp')"
	[ "$(figure "$report" .registration.served)" -eq 4 ]
	rm "$report"
	succeeds PINALLOC_PROGRAMS='other*' "$programs/rdma-script" "$(filling 'make qp')"
	[ ! -e "$report" ]
}

@test "glibc's tunable for huge pages counts where PINALLOC_HUGEPAGE is not set" {
	local name=glibc.malloc.hugetlb
	# advised REGEX [NAME=VALUE…]: what the kernel is asked for.
	advised() {
		run -0 strace -e trace=madvise,mmap env "${@:2}" LD_PRELOAD="$library" sort /dev/null
		[[ "$output" =~ $1 ]]
	}
	advised MADV_HUGEPAGE GLIBC_TUNABLES=$name=1
	advised MADV_HUGEPAGE GLIBC_TUNABLES=$name=0:glibc.malloc.check=3:$name=1
	advised MAP_HUGETLB GLIBC_TUNABLES=$name=2 PINALLOC_HUGEPAGE=
	local none
	for none in PINALLOC_HUGEPAGE=system PINALLOC_HUGEPAGE=off GLIBC_TUNABLES=$name=1:$name=0 \
		GLIBC_TUNABLES=$name=12 GLIBC_TUNABLES=glibc.malloc.check=1; do
		run -0 strace -e trace=madvise,mmap env GLIBC_TUNABLES=$name=1 "$none" \
			LD_PRELOAD="$library" sort /dev/null
		[[ ! "$output" =~ MADV_HUGEPAGE|MAP_HUGETLB ]]
	done
}
