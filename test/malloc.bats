#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: the library implements glibc's whole malloc family, each function by its own rules, with
# memory from its own heap.

setup() {
	load helper
	cd "$BATS_TEST_TMPDIR"
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
		sized: C23's free_sized and free_aligned_sized free blocks of the heap
		glibc: malloc_trim, mallinfo and mallinfo2 describe this heap
	END
}

# answers SECTION [BLOCKS]: prints what the functions answer, without the library and with it; so many blocks
# of glibc's, which are seen to be elsewhere.
answers() {
	"$programs/answers" "$1" > glibc
	[ "$(grep -c 'a block elsewhere' glibc)" -ge "${2:-0}" ]
	sed 's/ elsewhere//' glibc > plain
	preloaded PINALLOC_REGISTER=off "$programs/answers" "$1" > ours 2> said
	[ ! -s said ]
}

# same SECTION BLOCKS
same() {
	answers "$@"
	diff plain ours
}

@test "the functions return what glibc's do, for any argument, with blocks of the heap that are zero, or kept" {
	rows same <<- 'END'
		plain 200: malloc, calloc, realloc and reallocarray
		aligned 800: all that align, or return pages
		realloc 8: with a block, which it keeps when it fails
	END
}

@test "aligned_alloc refuses what glibc 2.38 refuses, if that is what there is" {
	answers aligned
	gcc -shared -fPIC -x c -o newer.so - <<- 'END'
		const char *gnu_get_libc_version(void);
		const char *gnu_get_libc_version(void) { return "2.38"; }
	END
	env LD_PRELOAD="$PWD/newer.so:$library" PINALLOC_REGISTER=off "$programs/answers" aligned > newer
	diff <(grep -v ^aligned_alloc plain) <(grep -v ^aligned_alloc newer)
	for alignment in 0 3 24 100 4097 6000 18446744073709551615; do
		[ "$(grep -c "^aligned_alloc($alignment, .*NULL, returns 0, errno 22$" newer)" -eq 19 ]
	done
	for alignment in 1 2 16 4096; do
		diff <(grep "^aligned_alloc($alignment, " plain) <(grep "^aligned_alloc($alignment, " newer)
	done
}

# M_PERTURB is -6, M_ARENA_MAX -8.
@test "mallopt returns what glibc's does, but 0 for another M_PERTURB or M_ARENA_MAX than there is" {
	answers mallopt
	diff plain <(sed '/(-[68],/s/ = 0$/ = 1/' ours)
	grep -qxF 'mallopt(-6, 0) = 1' ours
	[ "$(grep -c '(-6, .* = 0$' ours)" -eq 12 ]
	[ "$(grep -c '(-8, .* = 0$' ours)" -eq 12 ]
	export MALLOC_PERTURB_=8 MALLOC_ARENA_MAX=2
	answers mallopt
	grep -qxF 'mallopt(-6, 8) = 1' ours
	grep -qxF 'mallopt(-6, 0) = 0' ours
	grep -qxF 'mallopt(-8, 2) = 1' ours
	grep -qxF 'mallopt(-8, 0) = 0' ours
}

@test "malloc_info writes well-formed XML" {
	preloaded "$programs/surface" info > info.xml
	run -0 python3 - info.xml <<- 'END'
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
