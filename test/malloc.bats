#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: the library implements glibc's whole malloc family, each function by its own rules, with
# memory from its own heap.

setup() {
	load helper
}

# surface SECTION: runs the checks of one section under the library.
surface() {
	passes surface "$1"
}

# malloc_family: reads the output of `nm -D` and prints the malloc functions in it, sorted.
malloc_family() {
	local name='(m|c|re)alloc|reallocarray|c?free|free_sized|free_aligned_sized|memalign|aligned_alloc|posix_memalign'
	name+='|p?valloc|mallinfo2?|mallopt|malloc_(usable_size|trim|info|stats)'
	grep -v GLIBC_PRIVATE | grep -oE " (__libc_|__)?($name)(@|$)" | tr -d ' @' | sort -u
}

@test "each function keeps its rules" {
	rows surface <<- 'END'
		sizes: blocks of every size come from the heap and are aligned
		zero: malloc(0) returns a unique block
		beyond: a size beyond PTRDIFF_MAX, or a product that overflows, gives NULL and ENOMEM
		calloc: calloc clears memory that was used before
		realloc: realloc keeps the contents and, when it fails, the block
		alignment: the aligned functions align, and posix_memalign refuses invalid alignments
		pages: valloc and pvalloc return pages that free accepts
		sized: C23's free_sized and free_aligned_sized free blocks of the heap
		usable: malloc_usable_size returns the size that may be written
		errno: errno is unchanged by success and by free
		glibc: malloc_trim, mallinfo and mallinfo2 describe this heap
		libc-names: glibc's internal names for malloc functions give blocks that free accepts
	END
}

@test "aligned_alloc refuses what glibc 2.38 refuses, if that is what there is" {
	cd "$BATS_TEST_TMPDIR"
	gcc -shared -fPIC -x c -o newer.so - <<- 'END'
		const char *gnu_get_libc_version(void);
		const char *gnu_get_libc_version(void) { return "2.38"; }
	END
	run -0 env LD_PRELOAD="$PWD/newer.so:$library" "$programs/surface" alignment
}

# answers SECTION: prints what the functions return, without the library and with it.
answers() {
	"$programs/answers" "$1" > "$BATS_TEST_TMPDIR/plain"
	preloaded "$programs/answers" "$1" > "$BATS_TEST_TMPDIR/ours"
}

@test "the aligned functions return what glibc's do, for any argument" {
	answers aligned
	[ "$(grep -c 'a block, ' "$BATS_TEST_TMPDIR/plain")" -gt 800 ]
	diff "$BATS_TEST_TMPDIR/plain" "$BATS_TEST_TMPDIR/ours"
}

@test "mallopt returns what glibc's does, except for M_PERTURB and M_MXFAST" {
	answers mallopt
	diff "$BATS_TEST_TMPDIR/plain" <(sed '/M_PERTURB/s/ = 0$/ = 1/' "$BATS_TEST_TMPDIR/ours")
	grep -qxF 'mallopt(M_PERTURB, 0) = 1' "$BATS_TEST_TMPDIR/ours"
	[ "$(grep -c 'M_PERTURB, .* = 0$' "$BATS_TEST_TMPDIR/ours")" -eq 12 ]
	export MALLOC_PERTURB_=8
	answers mallopt
	grep -qxF 'mallopt(M_PERTURB, 8) = 1' "$BATS_TEST_TMPDIR/ours"
	grep -qxF 'mallopt(M_PERTURB, 0) = 0' "$BATS_TEST_TMPDIR/ours"
}

@test "without the library these checks fail" {
	for section in sizes alignment pages libc-names; do
		run "$programs/surface" "$section"
		[ "$status" -eq 1 ]
		[[ "$output" == *"not ok"* ]]
	done
}

@test "malloc_info writes well-formed XML" {
	preloaded "$programs/surface" info > "$BATS_TEST_TMPDIR/info.xml"
	run -0 python3 - "$BATS_TEST_TMPDIR/info.xml" <<- 'END'
		import sys, xml.etree.ElementTree as xml
		root = xml.parse(sys.argv[1]).getroot()
		print(root.tag, root.find("system").get("size"))
	END
	[[ "$output" =~ ^malloc\ [1-9][0-9]+$ ]]
	(($(cut -d' ' -f2 <<< "$output") % (2 << 20) == 0))
}

@test "malloc_stats writes what is in use to standard error" {
	local use
	run -0 --separate-stderr preloaded "$programs/surface" stats
	[ -z "$output" ]
	echo "$stderr"
	use=$(sed -n 's/^in use bytes  *= //p' <<< "$stderr")
	[ "$use" -ge $((200 << 20)) ]
	[ "$use" -lt $((202 << 20)) ]
	[ "$(sed -n 's/^system bytes  *= //p' <<< "$stderr")" -ge "$use" ]
}

@test "the library has every malloc function that glibc has" {
	local libc wanted
	libc=$(ldd "$programs/surface" | awk '/libc\.so/ { print $3 }')
	wanted=$(nm -D --defined-only "$libc" | malloc_family)
	[ "$(wc -l <<< "$wanted")" -ge 25 ]
	run comm -23 <(echo "$wanted") <(nm -D --defined-only "$library" | malloc_family)
	echo "only in glibc: $output"
	[ -z "$output" ]
}

@test "a program's malloc is the library's, called by name or through its address" {
	local name
	for name in malloc calloc realloc reallocarray free memalign aligned_alloc \
		posix_memalign valloc pvalloc malloc_usable_size malloc_trim mallopt \
		mallinfo mallinfo2 malloc_info malloc_stats _Znwm _ZdlPv; do
		run -0 preloaded "$programs/caller" "$name"
		[ "$output" = libpinalloc.so ]
		run "$programs/caller" "$name"
		[ "$output" != libpinalloc.so ]
	done
}
