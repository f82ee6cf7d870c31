#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: a pointer that does not belong to a block in use is reported, with the function that got
# it and the place of the call, and the process ends by SIGABRT, as with glibc. Correct use, however
# unusual, is not affected. Where one of the library's functions calls another, as delete calls free(), the
# program's call is known because the compiler makes a jump of that: not without optimization.

setup() {
	load helper
	ulimit -c 0
}

# function_at LIBRARY OFFSET: a name that the library exports of the code there.
function_at() {
	nm -Dn --defined-only "$1" | awk -v "at=$(printf %016x "$2")" '$1 "" <= at { name = $3 } END { print name }'
}

# names TEXT KIND [FUNCTION] [NAME=VALUE…]: the program ends by SIGABRT with one line that names the
# function, the pointer, the mistake, and the program's function `give`, or globfree() that it calls.
names() {
	local text=$1 kind=$2 function=${3:-free} name
	shift 2
	shift $(($# > 0))
	case $function in
	delete* | free_sized | globfree) name=free ;;
	realloc*) name=realloc ;;
	sdallocx*) name=sdallocx ;;
	*) name=$function ;;
	esac
	module=$(realpath "$programs")/misuse
	[ "$function" != globfree ] || module='/.*/libc\.so\.6'
	echo "$kind $function"
	run -134 preloaded PINALLOC_REGISTER=off "$@" "$programs/misuse" "$kind" "$function"
	echo "$output"
	[ "${#lines[@]}" -eq 2 ]
	pattern="^pinalloc\[[0-9]+\]: $name\(${lines[0]}\): $text; called at ($module)\+(0x[0-9a-f]+) \(see MISUSE in pinalloc\(7\)\)$"
	[[ "${lines[1]}" =~ $pattern ]]
	if [ "$function" = globfree ]; then
		[[ "$(function_at "${BASH_REMATCH[@]: -2}")" == *globfree* ]]
	else
		[[ "$(addr2line -f -e "$module" "${BASH_REMATCH[-1]}")" == give* ]]
	fi
}

foreign='invalid pointer, it is not of this heap'
twice='double free, the block is free already'
late='use after free, the block is free already'
inside() { # OFFSET SIZE
	echo "invalid pointer, $1 bytes into the block of $2 at 0x[0-9a-f]+"
}

@test "a pointer that is not from the heap is reported, by every function" {
	for kind in stack program mapped stray noncanonical; do
		names "$foreign" $kind
	done
	for function in realloc realloc-0 reallocarray free_sized dallocx sdallocx rallocx sallocx xallocx \
		delete 'delete[]'; do
		names "$foreign" stack "$function"
	done
}

@test "the place of the call is named in each process, whatever locks others hold" {
	names "$foreign" stack globfree
	names "$foreign" stack free PINALLOC_REPORT=stderr
	names "$foreign" locked
	names "$foreign" locked realloc PINALLOC_REPORT=stderr
}

@test "a pointer into a large block is reported, on whichever page" {
	names "$(inside 16 3211264)" large-first
	names "$(inside 1605280 3211264)" large-middle
	names "$(inside 3210559 3211264)" large-last
	names "$(inside 4096 3211264)" aligned
	names "$(inside 4096 20480)" cached-inner
	for function in realloc malloc_usable_size dallocx sdallocx rallocx sallocx xallocx delete; do
		names "$(inside 1605280 3211264)" large-middle $function
	done
}

@test "a large block that is freed twice is named, and one that is used after it" {
	for kind in large-freed large-freed-merged cached-freed thread-freed; do
		names "$twice" $kind
		names "$late" $kind realloc
		names "$late" $kind malloc_usable_size
	done
}

# jemalloc checks nothing of its own blocks: what of them is seen lies in pages that it gave back.
@test "a small block that is freed again when its slab is free is named" {
	names "$twice" small-gone
	names "$late" small-gone realloc
	names "$late" small-gone malloc_usable_size
}

@test "a child reports its own misuse, and its parent continues" {
	run -134 preloaded "$programs/misuse" child
	echo "$output"
	[ "$(grep -c "free(${lines[0]}): $twice" <<< "$output")" -eq 1 ]
}

# By the functions of glibc and C++ here, by those of jemalloc, in threads and children in test/stress.bats.
@test "correct use, however unusual, is never reported, under any setting" {
	local conf section
	for conf in MALLOC_CONF=tcache:false,narenas:1 MALLOC_CONF=junk:true,prof:true PINALLOC_SAMPLE=256 \
		MALLOC_PERTURB_=1; do
		for section in plain realloc new; do
			echo "$section with '$conf'"
			run -0 --separate-stderr preloaded PINALLOC_REGISTER=off "$conf" "$programs/answers" $section
			[ -z "$stderr" ]
		done
	done
}
