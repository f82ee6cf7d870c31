#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: options behave as PINALLOC_HELP=1 says; a mistake costs one line, not the program.

setup() {
	load helper
}

# works [NAME=VALUE…]: a program prints "works" under the library, and nothing else.
works() {
	said '' "$@"
}

# said REGEX [NAME=VALUE…]: the same, but with one line on standard error, like that; but for what
# the loader of glibc 2.41 says where a value for glibc too is no plain number.
said() {
	local line=$1
	shift
	run --separate-stderr preloaded "$@" echo works
	stderr=$(grep -v '^WARNING: ld\.so: invalid ' <<< "$stderr" || :)
	echo "$*: status $status, said \"$stderr\", not \"$line\""
	[ "$status" -eq 0 ]
	[ "$output" = works ]
	[ "$(grep -c . <<< "$stderr")" -eq "$([ -n "$line" ] && echo 1 || echo 0)" ]
	[[ "$stderr" =~ ^${line:+pinalloc\[[0-9]+\]: $line}$ ]]
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
	works PINALLOC_HELP=0
}

@test "a bad value gives one line, with the valid values and the one that is used" {
	local help setting row values kept
	help=$(preloaded PINALLOC_HELP=1 true)
	for setting in PINALLOC_LOG=banana PINALLOC_REGISTER=sometimes PINALLOC_ACCESS=read,execute \
		PINALLOC_MAX_PINNED=lots PINALLOC_MAX_PINNED=101% PINALLOC_MAX_PINNED=-1 \
		PINALLOC_MAX_PINNED=1 PINALLOC_MAX_PINNED=4095 PINALLOC_PREALLOC=4 \
		PINALLOC_PREALLOC=4X PINALLOC_PREALLOC=4Mi PINALLOC_PREALLOC=M PINALLOC_PREALLOC=4.5M \
		PINALLOC_PREALLOC=99999999999999999999 PINALLOC_PREALLOC=99999999T \
		PINALLOC_HUGEPAGE=always PINALLOC_HUGEPAGE=1 \
		PINALLOC_REPORT=stdout MALLOC_ARENA_MAX=many MALLOC_TOP_PAD_=0x10 MALLOC_PERTURB_=-1; do
		row=$(sed -n "s/^${setting%%=*}  *//p" <<< "$help")
		values=${row% (*}
		kept=${row##* (}
		said "$setting is not understood: it takes $values; keeping ${kept%)}" "$setting"
	done
}

@test "an empty variable is unset" {
	local name
	for name in $(preloaded PINALLOC_HELP=1 true | sed -nE 's/^((PIN|M)ALLOC_[A-Z_]+) .*/\1/p') \
		PINALLOC_RESERVE PINALLOC_FOO; do
		works "$name="
	done
	run "$top_builddir/pinalloc" check
	local without=$output
	PINALLOC_MAX_PINNED='' PINALLOC_RESERVE='' run "$top_builddir/pinalloc" check
	[ "$output" = "$without" ]
}

@test "an unknown option gives one line" {
	said 'PINALLOC_FOO=1: no such option; PINALLOC_HELP=1 lists them' PINALLOC_FOO=1
	said 'PINALLOC_GROWTH=4M: no such option.*' PINALLOC_GROWTH=4M
	works PINALLOC=1 MY_PINALLOC_FOO=1
}

@test "PINALLOC_LOG=error silences warnings, and only =debug shows how the heap grows" {
	works PINALLOC_FOO=1 PINALLOC_PREALLOC=banana PINALLOC_LOG=error
	said 'the heap grows by [0-9.]+ MiB to 0x[0-9a-f]+00000' PINALLOC_LOG=debug
	works PINALLOC_LOG=info
}

@test "every option accepts the values in its row, silently" {
	local size
	for size in 4194304 4096k 4096K 4m 4M 1g 1G 1t 1T 4MB 4MiB 4mb 4096KiB 1GB 1GiB 1TiB; do
		works PINALLOC_PREALLOC=$size PINALLOC_MAX_PINNED=$size MALLOC_TOP_PAD_=$size
	done
	works PINALLOC_MAX_PINNED=none PINALLOC_ACCESS=local PINALLOC_REGISTER=lazy
	works PINALLOC_MAX_PINNED=50% PINALLOC_ACCESS=read,write,atomic PINALLOC_REGISTER=off
	works PINALLOC_HUGEPAGE=thp
	works PINALLOC_HUGEPAGE=system
	works PINALLOC_HUGEPAGE=off
	works PINALLOC_MAX_PINNED=0 PINALLOC_ACCESS=all PINALLOC_REGISTER=eager
	works PINALLOC_REPORT=off PINALLOC_PROGRAMS='no such*'
}

@test "PINALLOC_PROGRAMS limits registration to the programs it names" {
	build_adapter
	succeeds PINALLOC_PROGRAMS='rdma-*s' "$programs/rdma-objects" qp
	[ "$(figure "$report" .registration.served)" -eq 4 ]
	rm "$report"
	succeeds PINALLOC_PROGRAMS='other*' "$programs/rdma-objects" qp
	[ ! -e "$report" ]
}

@test "glibc's MALLOC_PERTURB_ fills new blocks, but not those of calloc" {
	run -0 preloaded "$programs/bytes"
	[ "$output" = $'01 00\n01 00' ]
	run -0 preloaded MALLOC_PERTURB_=7 "$programs/bytes"
	[ "$output" = $'a5 00\na5 00' ]
}

@test "glibc's MALLOC_ARENA_MAX sets the number of arenas" {
	[ "$(preloaded MALLOC_ARENA_MAX=3 "$programs/ctl" opt.narenas)" -eq 3 ]
	[ "$(preloaded MALLOC_ARENA_MAX=5 "$programs/ctl" opt.narenas)" -eq 5 ]
	[ "$(preloaded MALLOC_ARENA_MAX=1 "$programs/ctl" arenas.narenas)" -eq 1 ]
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
	works GLIBC_TUNABLES=$name=1
	local none
	for none in PINALLOC_HUGEPAGE=system PINALLOC_HUGEPAGE=off GLIBC_TUNABLES=$name=1:$name=0 \
		GLIBC_TUNABLES=$name=12 GLIBC_TUNABLES=glibc.malloc.check=1; do
		run -0 strace -e trace=madvise,mmap env GLIBC_TUNABLES=$name=1 "$none" \
			LD_PRELOAD="$library" sort /dev/null
		[[ ! "$output" =~ MADV_HUGEPAGE|MAP_HUGETLB ]]
	done
}

@test "glibc's other settings are accepted and ignored, without a line" {
	works MALLOC_TRIM_THRESHOLD_=1 MALLOC_MMAP_MAX_=0 MALLOC_MMAP_THRESHOLD_=1 \
		MALLOC_CHECK_=3 MALLOC_ARENA_TEST=1 GLIBC_TUNABLES=glibc.malloc.perturb=1
}
