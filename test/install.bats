#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: what `make install` leaves is enough to use the library and to build with
# it.
load helper

setup_file() {
	export root=$BATS_FILE_TMPDIR/root
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL \
		make -C "$top_builddir" install DESTDIR="$root" > "$BATS_FILE_TMPDIR/log" 2>&1 ||
		{ cat "$BATS_FILE_TMPDIR/log"; return 1; }
}

setup() {
	cd "$BATS_TEST_TMPDIR"
	export PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_PATH
	PKG_CONFIG_PATH=$(dirname "$(installed pinalloc.pc)")
	cat > program.c <<- 'END'
		#include <errno.h>
		#include <pinalloc.h>
		#include <stdio.h>
		int main(void)
		{
			/* Of a later version, which has more. */
			struct { struct pinalloc_stats stats; long more; } it = {.more = 1};
			if (!pinalloc_stats)
				return puts("without") < 0;
			if (pinalloc_stats(&it.stats, sizeof it) != sizeof it.stats || it.more != 1)
				return 1;
			return puts(it.stats.live_peak && it.stats.mapped && it.stats.growth_steps ? "with" : "no figures") < 0;
		}
	END
}

# installed NAME: the path of the only installed file of that name.
installed() {
	find "$root" -name "$1" -type f | grep .
}

@test "make install installs the library, command, header, pkg-config file and manual pages" {
	local file
	for file in libpinalloc.so pinalloc pinalloc-bugreport pinalloc.h pinalloc.pc pinalloc.1 pinalloc-bugreport.1 pinalloc.3 pinalloc.7 \
		pinalloc-admin.7 pools.py exchange.py pinalloc-problems.7 pinalloc-python.7; do
		[ "$(installed "$file" | wc -l)" -eq 1 ]
	done
	run -1 installed 'libpinalloc.so.*'
	run -1 installed '*.a'
	cmp "$(installed pinalloc.h)" "$top_srcdir/preload/pinalloc.h"
}

@test "Python finds the installed module in the directory that pkg-config tells" {
	local dir
	dir=$(pkg-config --variable=pythondir pinalloc)
	run -0 env LD_PRELOAD="$(installed libpinalloc.so)" PYTHONPATH="$root${dir#"$root"}" \
		/usr/bin/python3 -c 'import pinalloc; print(len(pinalloc.Pool(1).alloc(10)), pinalloc.library())'
	[ "$output" = "10 $(installed libpinalloc.so)" ]
	PYTHONPATH=$root${dir#"$root"} run -0 /usr/bin/python3 -m pinalloc run printenv LD_PRELOAD
	[ "$output" = "$(installed libpinalloc.so)" ]
}

@test "the installed command finds the installed library, also if both were moved" {
	local command library
	command=$(installed pinalloc)
	library=$(installed libpinalloc.so)
	[ "$("$command" run printenv LD_PRELOAD)" = "$library" ]
	run "$command" check
	[[ "$output" == *"ok    library: $library takes over malloc"* ]]
}

@test "C and C++ programs built with the installed header run with the library and without" {
	local compiler
	for compiler in gcc 'g++ -x c++'; do
		$compiler -Wall -Werror $(pkg-config --cflags pinalloc) -o program program.c
		[ "$(./program)" = without ]
		[ "$(env LD_PRELOAD="$(installed libpinalloc.so)" ./program)" = with ]
	done
}

@test "a program can be linked with the library" {
	gcc $(pkg-config --cflags pinalloc) -o program program.c $(pkg-config --libs pinalloc)
	run -127 ./program
	run -0 env LD_LIBRARY_PATH="$(dirname "$(installed libpinalloc.so)")" ./program
	[ "$output" = with ]
	[ "$(pkg-config --modversion pinalloc)" = "$(sed -n \
		's/^AC_INIT(\[pinalloc\],\[\(.*\)\])/\1/p' "$top_srcdir/configure.ac")" ]
}

@test "the header needs no other header and no libibverbs types" {
	echo '#include <pinalloc.h>' > alone.c
	gcc -std=c99 -pedantic -Wall -Werror $(pkg-config --cflags pinalloc) -c alone.c
	run ! grep -q infiniband <(gcc $(pkg-config --cflags pinalloc) -E alone.c)
}

@test "make uninstall leaves nothing of it" {
	make -C "$top_builddir" install DESTDIR="$PWD/all" > log 2>&1
	[ -n "$(find all -path '*/share/pinalloc/*')" ]
	make -C "$top_builddir" uninstall DESTDIR="$PWD/all" >> log 2>&1
	# The prefix may have that name, too.
	[ -z "$(find all -type f -o -path '*/share/pinalloc')" ]
}
