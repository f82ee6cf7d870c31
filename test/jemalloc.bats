#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: configure names what is wrong with a jemalloc that the library cannot be built with, in
# one line, and the cure. It is asked of archives that only answer.

bats_require_minimum_version 1.5.0

setup_file() {
	export source=$BATS_FILE_TMPDIR/source
	mkdir -p "$source/allocator" "$BATS_FILE_TMPDIR/build"
	cp -r "$top_srcdir"/{configure,build-aux,config.h.in,Makefile.in} "$source"
	cp "$top_srcdir"/allocator/{pages.c,jemalloc.h} "$source/allocator"
	cd "$BATS_FILE_TMPDIR/build"
	# What all runs of it share is asked once.
	run -1 "$source/configure" -q -C JEMALLOC_PIC=/nowhere/libjemalloc_pic.a
	echo "$output" | tee first
}

setup() {
	load helper
	cd "$BATS_FILE_TMPDIR/build"
}

# archive VERSION PAGE DEBUG STATS PROF [THREAD [MISSING [MAP]]]: one that answers so, with a
# thread's state and a page table of these sizes, and without that name.
archive() {
	cat > answers.c <<-END
		#include <string.h>
		int mallctl(const char *name, void *old, size_t *size, void *value, size_t n)
		{
			const char *version = "$1-0-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c";
			size_t page = $2;
			if (!strcmp(name, "version"))
				memcpy(old, &version, sizeof version);
			else if (!strcmp(name, "arenas.page"))
				memcpy(old, &page, sizeof page);
			else if (*size == 1)
				*(_Bool *)old = strcmp(name, "config.debug") ? strcmp(name, "config.stats") ? $5 : $4 : $3;
			return 0 * !value * n;
		}
		char je_arena_emap_global[${8:-0x200078}];
		_Thread_local char je_tsd_tls[${6:-0xa48}];
		$(sed -nE 's/^PIN_[A-Z]*\([^,]*, *([a-z0-9_]*).*/char \1;/p' \
			"$source/allocator/jemalloc.h" | grep -vE "^char (je_arena_emap_global|${7:-none});")
	END
	gcc -c -fPIC -w answers.c -o answers.o
	rm -f "$BATS_FILE_TMPDIR/libjemalloc_pic.a"
	ar rc "$BATS_FILE_TMPDIR/libjemalloc_pic.a" answers.o
}

# configured: configure with that archive; only its errors and warnings.
configured() {
	rm -rf config.status conftest*
	"$source/configure" -q -C JEMALLOC_PIC="$BATS_FILE_TMPDIR/libjemalloc_pic.a" 2>&1 |
		sed -n 's/^configure: \(WARNING\|error\)/\1/p'
}

# refuses TEXT ANSWER…: the only error about such an archive.
refuses() {
	local text=$1
	shift
	archive "$@"
	run configured
	echo "$output"
	[[ "$(grep -c '^error: ' <<< "$output")" -eq 1 ]]
	[[ "$output" == *"error: "*"$text"* ]]
}

@test "an archive that is not there, or empty" {
	rm -f "$BATS_FILE_TMPDIR/libjemalloc_pic.a"
	ar rc "$BATS_FILE_TMPDIR/libjemalloc_pic.a"
	run configured
	echo "$output"
	[[ "$output" == "error: no program runs with $BATS_FILE_TMPDIR/libjemalloc_pic.a (see config.log):"* ]]
	grep -qF 'error: there is no /nowhere/libjemalloc_pic.a:' first
	grep -qF './configure JEMALLOC_PIC=' first
}

@test "another version, and which" {
	refuses 'jemalloc 5.3.0 is needed, and '"$BATS_FILE_TMPDIR"'/libjemalloc_pic.a is 5.3.1:' \
		5.3.1 4096 0 1 1
}

# bats test_tags=thorough
@test "other pages, a debug build, no statistics" {
	refuses 'is for pages of 16384 bytes, ' 5.3.0 16384 0 1 1
	refuses 'is a debug build, ' 5.3.0 4096 1 1 1
	refuses 'has no statistics, ' 5.3.0 4096 0 0 1
}

# bats test_tags=thorough
@test "other tables, and a name that is missing" {
	refuses 'are not those of 48-bit or 57-bit addresses and its pages:' 5.3.0 4096 0 1 1 0xa58
	refuses 'are not those of 48-bit or 57-bit addresses and its pages:' \
		5.3.0 4096 0 1 1 0xa48 none 0x100078
	# Of the other size of pages, each of the two.
	refuses 'addresses and its pages:' 5.3.0 4096 0 1 1 0xa88
	refuses 'addresses and its pages:' 5.3.0 65536 0 1 1 0xa88
	refuses 'addresses and its pages:' 5.3.0 65536 0 1 1 0xa48 none 0x80078
	refuses 'this jemalloc lacks je_pages_map:' 5.3.0 4096 0 1 1 0xa48 je_pages_map
}

# bats test_tags=thorough
@test "tables of 48-bit and of 57-bit addresses, each read in its own way" {
	archive 5.3.0 4096 0 1 1
	run configured
	[ -z "$output" ]
	grep -x '#define JE_ADDRESS_BITS 48' config.log
	archive 5.3.0 4096 0 1 1 0xa48 none 0x40078
	run configured
	[ -z "$output" ]
	grep -x '#define JE_ADDRESS_BITS 57' config.log
	grep -x '#define JE_PAGE_SHIFT 12' config.log
}

# As Debian builds it everywhere but on x86. Locks are larger on arm64.
# bats test_tags=thorough
@test "tables for pages of 64 KiB" {
	for map in 48:0x80078 48:0x80080 57:0x10078; do
		archive 5.3.0 65536 0 1 1 0xa88 none "${map#*:}"
		run configured
		[ -z "$output" ]
		grep -x "#define JE_ADDRESS_BITS ${map%:*}" config.log
		grep -x '#define JE_PAGE_SHIFT 16' config.log
	done
}

# bats test_tags=thorough
@test "without the profiler only samples are missing" {
	archive 5.3.0 4096 0 1 0
	run configured
	echo "$output"
	[[ "$output" == *"WARNING: this jemalloc has no profiler, so PINALLOC_SAMPLE will have no effect:"* ]]
	[[ "$output" != *jemalloc*error* ]]
	archive 5.3.0 4096 0 1 1
	run configured
	echo "$output"
	[[ "$output" != *jemalloc* ]]
}
