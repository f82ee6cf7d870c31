#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: configure names what is wrong with a compiler or a jemalloc that the library cannot be built
# with, in one line, and the cure. It is asked of archives that only answer.
load helper

setup_file() {
	export source=$BATS_FILE_TMPDIR/source
	mkdir -p "$source/allocator" "$BATS_FILE_TMPDIR/build"
	cp -r "$top_srcdir"/{configure,build-aux,config.h.in,Makefile.in} "$source"
	cp "$top_srcdir"/allocator/runs.c "$source/allocator"
	cd "$BATS_FILE_TMPDIR/build"
	# What all runs of it share is asked once.
	run -1 "$source/configure" -q -C JEMALLOC_PIC=/nowhere/libjemalloc_pic.a
	echo "$output" | tee first
}

setup() {
	cd "$BATS_FILE_TMPDIR/build"
}

# archive VERSION[-COMMITS] PAGE DEBUG [PROF [SIZE [MISSING [SETTING…]]]]: one that answers so, whose blocks for
# 5121 bytes have this size, without that name and with these settings.
archive() {
	local version=$1
	[[ $version == *-* ]] || version+=-0
	cat > answers.c <<-END
		#include <string.h>
		int mallctl(const char *name, void *old, size_t *size, void *value, size_t n)
		{
			const char *version = "$version-g54eaed1d8b56b1aa528be3bdd1877e59c56fa90c";
			size_t page = $2;
			if (!strcmp(name, "version"))
				memcpy(old, &version, sizeof version);
			else if (!strcmp(name, "arenas.page"))
				memcpy(old, &page, sizeof page);
			else if (*size == 1)
				*(_Bool *)old = strcmp(name, "config.debug") ? ${4:-1} : $3;
			return 0 * !value * n;
		}
		size_t nallocx(size_t n, int flags)
		{
			return n == 5121 ? ${5:-6144} : n > 16 ? n : 16;
		}
		$(printf 'char %s = 1;\n' je_extent_alloc_mmap je_extent_dalloc_mmap je_opt_retain \
			je_rtree_leaf_elm_lookup_hard |
			grep -v "^char ${6:-none} ")
		$([ $# -le 6 ] || printf 'char %s = 1;\n' "${@:7}")
	END
	gcc -c -fPIC -w answers.c -o answers.o
	rm -f "$BATS_FILE_TMPDIR/libjemalloc_pic.a"
	ar rc "$BATS_FILE_TMPDIR/libjemalloc_pic.a" answers.o
}

# configured TEXT: configure says only this of that archive, of its errors and warnings.
configured() {
	rm -rf config.status conftest*
	run "$source/configure" -q -C JEMALLOC_PIC="$BATS_FILE_TMPDIR/libjemalloc_pic.a"
	output=$(sed -n 's/^configure: \(WARNING\|error\)/\1/p' <<< "$output")
	echo "$output"
	[[ "$output" == $1 ]]
}

# fits ANSWER…: nothing is wrong with such an archive.
fits() {
	archive "$@"
	configured ''
}

# refuses TEXT ANSWER…: the only error about such an archive.
refuses() {
	archive "${@:2}"
	configured "*error: *$1*"
	[ "$(grep -c '^error: ' <<< "$output")" -eq 1 ]
}

@test "32 bits and a C library that is not glibc are refused by name, first" {
	run -1 "$source/configure" -q CC='gcc -m32'
	[ "$output" = "configure: error: pinalloc needs 64-bit addresses: leave -m32 out" ]
	mkdir -p other
	true > other/limits.h
	run -1 "$source/configure" -q CC="gcc -I$PWD/other"
	[[ "$output" == "configure: error: pinalloc needs glibc, which gcc -I"*" does not use (musl?)" ]]
}

@test "an archive that is not there, empty, or not of this machine" {
	rm -f "$BATS_FILE_TMPDIR/libjemalloc_pic.a"
	ar rc "$BATS_FILE_TMPDIR/libjemalloc_pic.a"
	configured "error: $BATS_FILE_TMPDIR/libjemalloc_pic.a lacks je_extent_alloc_mmap *"
	grep -qF 'error: there is no /nowhere/libjemalloc_pic.a:' first
	grep -qF './configure JEMALLOC_PIC=' first
	# And where it says how to build one.
	grep -F 'in three lines (README)' first
	[ "$(grep -cE '^    (\./configure --disable-cxx |make build_lib_static|export JEMALLOC_PIC=)' "$top_srcdir/README")" -eq 3 ]
	archive 5.3.0 4096 0
	objcopy --redefine-sym mallctl=other "$BATS_FILE_TMPDIR/libjemalloc_pic.a"
	configured "error: no program runs with $BATS_FILE_TMPDIR/libjemalloc_pic.a (see config.log):*"
}

@test "any version that has the names; settings are those that it has" {
	local version
	for version in 5.1.0 5.4.0 0.0.0 6.1; do
		fits $version 4096 0
		grep -x '#define JE_SETTINGS ",prof:false"' config.log
	done
	fits 5.4.0 4096 0 0 6144 none je_opt_hpa je_opt_trust_madvise je_prof_boot2
	grep -x '#define JE_SETTINGS ",hpa:false,trust_madvise:true"' config.log
	grep -x "JEMALLOC_WRAPS='-Wl,--wrap=je_tsd_fetch_slow -Wl,--wrap=je_prof_boot2 -Wl,--wrap=je_rtree_leaf_elm_lookup_hard'" config.log
}

@test "other pages, a debug build, other sizes" {
	refuses 'is for pages of 16384 bytes, ' 5.3.0 16384 0
	refuses 'is a debug build, ' 5.3.0 4096 1
	refuses 'has other size classes:' 5.3.0 4096 0 1 7168
}

@test "a name that is missing" {
	refuses 'libjemalloc_pic.a lacks je_opt_retain:' 5.3.0 4096 0 1 6144 je_opt_retain
}
