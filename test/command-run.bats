#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: `pinalloc run` is a command line for the environment variables. Mistakes are reported in
# one line before the program runs.

setup() {
	load helper
	cd "$BATS_TEST_TMPDIR"
	pinalloc=$top_builddir/pinalloc
}

# refused STATUS LINE ARGUMENT…: ends with this status, and prints only this line on standard error.
refused() {
	local status_wanted=$1 line=$2
	shift 2
	run "-$status_wanted" --separate-stderr "$pinalloc" run "$@"
	echo "said: $stderr"
	[ -z "$output" ]
	# Of wrong usage a second line names --help.
	[ "$(grep -vc '^Try ' <<< "$stderr")" -eq 1 ]
	[[ "${stderr_lines[0]}" =~ ^pinalloc\ run:\ $line$ ]]
}

# warned LINE COMMAND…: the command runs, after this line, in which %s stands for the command's
# path.
warned() {
	local line=$1
	shift
	run -0 --separate-stderr "$pinalloc" run --log=error "$@"
	echo "said: $stderr"
	[ "$stderr" = "pinalloc run: ${line//%s/$1}" ]
}

# silent COMMAND…: the command runs, and nothing is printed.
silent() {
	run -0 --separate-stderr "$pinalloc" run --log=error "$@"
	echo "said: $stderr"
	[ -z "$stderr" ]
}

@test "a program runs under the library, with its arguments and exit status" {
	run -7 "$pinalloc" run -- bash -c 'echo "$LD_PRELOAD|$1"; grep -c libpinalloc.so \
		/proc/self/maps >&2; exit 7' bash '--two  words'
	[ "${lines[0]}" = "$library|--two  words" ]
	[ "${lines[1]}" -gt 0 ]
	run -0 "$pinalloc" run --report=stderr true
	[[ "$output" == "pinalloc: true, process "* ]]
}

@test "every row of options.def is a command line option that sets its variable" {
	local flag name names
	names=$(sed -n 's/^OPTION(.*, "\([A-Z_]*\)", .*/\1/p' "$top_srcdir/allocator/options.def")
	[ "$(wc -w <<< "$names")" -eq \
		"$(grep -c '^OPTION(' "$top_srcdir/allocator/options.def")" ]
	run -0 "$pinalloc" run --help
	for name in $names; do
		flag=$(sed 's/^PINALLOC_//; s/^MALLOC_//; s/_*$//' <<< "$name" | tr A-Z_ a-z-)
		echo "$name: --$flag"
		grep -qE -- "^ +--$flag=VALUE " <<< "$output"
		value=$(PINALLOC_HELP=1 preloaded true | sed -n "s/^$name .*(\(.*\))$/\1/p")
		[ "$("$pinalloc" run "--$flag=$value" printenv "$name")" = "$value" ]
	done
}

@test "--help has the same sentence for each option as PINALLOC_HELP" {
	run -0 "$pinalloc" run --help
	[[ "$output" == "Usage: pinalloc run "* ]]
	local help sentence
	help=$(tr -s ' \n' ' ' <<< "$output")
	PINALLOC_HELP=1 preloaded true | sed -E 's/^[PM][A-Z_]+ +//; s/^ +//; s/ +$//' | paste -d : - - > rows
	[ "$(wc -l < rows)" -ge 13 ]
	while read -r sentence; do
		echo "$sentence"
		[[ "$help" == *"${sentence/):/): }"* ]]
	done < rows
}

@test "a bad value, option or command line is refused before the program runs" {
	local setting
	for setting in log=banana report= register=sometimes access=read,execute max-pinned=101% \
		prealloc=4X prealloc=1 arena-max=many perturb=-1 top-pad=0x10; do
		refused 64 "--$setting is not understood: it takes .*" "--$setting" touch ran
	done
	refused 64 'unrecognized option .--grow=4M.' --grow=4M touch ran
	refused 64 'invalid option -- .x.' -x touch ran
	refused 64 'option .--report. requires an argument' --report
	refused 64 'no COMMAND' --prealloc=4M --
	refused 64 'no COMMAND'
	[ ! -e ran ]
}

@test "a program that cannot be executed gives the exit status of env(1)" {
	: > plain
	refused 127 'no-such-program: No such file or directory' no-such-program
	refused 127 '\./no-such: No such file or directory' ./no-such
	refused 126 '\./plain: Permission denied' ./plain
	refused 126 '/tmp: Permission denied' /tmp
}

@test "the library is first in LD_PRELOAD, once, and other entries stay" {
	preloads() {
		LD_PRELOAD=$1 "$pinalloc" run printenv LD_PRELOAD 2> errors
	}
	[ "$(preloads '')" = "$library" ]
	[ "$(preloads libjemalloc.so.2)" = "$library:libjemalloc.so.2" ]
	[ "$(preloads "libm.so.6 $library")" = "$library:libm.so.6" ]
	[ "$(preloads "$library:libm.so.6::libjemalloc.so.2")" = \
		"$library:libm.so.6:libjemalloc.so.2" ]
	[ "$(LD_PRELOAD= "$pinalloc" run "$pinalloc" run printenv LD_PRELOAD)" = "$library" ]
}

@test "a statically linked program is recognised, whether position-independent or not" {
	echo 'int main(void) { return 0; }' > program.c
	gcc -static -o static program.c
	gcc -static-pie -o static-pie program.c
	gcc -o dynamic program.c
	warned '%s does not load the library: statically linked; link it dynamically, with glibc, for this machine' ./static
	warned '%s does not load the library: statically linked; link it dynamically, with glibc, for this machine' ./static-pie
	silent ./dynamic
}

@test "a program built with a sanitizer is started without the library, and one line says so" {
	local kind runtime
	for kind in address thread leak; do
		gcc -fsanitize=$kind -o $kind -x c - <<< 'int main(void) { return 0; }'
		runtime=$(readelf -d $kind | grep -o 'lib[alt]san[^]]*')
		warned "%s has the malloc of a sanitizer ($runtime), and runs without this library; build it without -fsanitize" ./$kind
	done
	printf '%s\n' '#include <stdlib.h>' 'int main(void) { return system("echo preload: $LD_PRELOAD"); }' > says.c
	gcc -fsanitize=address -o says says.c
	run -0 --separate-stderr env LD_PRELOAD="$library" "$pinalloc" run --log=info ./says
	[ "$output" = 'preload:' ]
	[ "${#stderr_lines[@]}" -eq 1 ]
	gcc -fsanitize=undefined -o undefined -x c - <<< 'int main(void) { return 0; }'
	silent ./undefined
}

@test "a program with elevated privileges is recognised" {
	cp "$(type -P true)" owned
	chmod 755 . owned
	chown 65534 owned
	silent ./owned
	chmod u+s owned
	warned '%s has privileges of its own, so LD_PRELOAD is ignored; use a copy without them, or preload only in what it starts' ./owned
	chown 0:65534 owned
	chmod 2755 owned
	warned '%s has privileges of its own, so LD_PRELOAD is ignored; use a copy without them, or preload only in what it starts' ./owned
}

@test "a program for another machine is recognised" {
	local other=$'\x28' # ARM
	cp "$(type -P true)" other
	printf %s "$other" | dd of=other bs=1 seek=18 conv=notrunc status=none
	run --separate-stderr "$pinalloc" run ./other
	[[ "${stderr_lines[0]}" == 'pinalloc run: ./other does not load the library: '*'; link it dynamically, with glibc, for this machine' ]]
}

@test "programs are found through PATH, as by the shell; of scripts nothing is said" {
	gcc -static -o static -x c - <<< 'int main(void) { return 0; }'
	printf '#!/bin/sh\n' > shell
	printf 'exit 0\n' > bare
	chmod +x shell bare
	mkdir -p decoy/static
	run -0 --separate-stderr env PATH="$PWD/decoy::/usr/bin" "$pinalloc" run static
	[[ "$stderr" == "pinalloc run: ./static does not load the library: "* ]]
	silent ./shell
	silent ./bare
}

@test "a truncated or damaged executable does no harm" {
	local size
	cp "$programs/ownmalloc" whole
	for size in 1 4 20 63 64 100 700 2000 5000 12000 $(($(stat -c %s whole) - 100)); do
		head -c "$size" whole > cut
		chmod +x cut
		run --separate-stderr "$pinalloc" check ./cut
		[ "$status" -le 2 ]
		[ -z "$stderr" ]
	done
	python3 - <<- 'END'
		import random, subprocess, sys, os
		random.seed(1)
		whole = open("whole", "rb").read()
		for i in range(60):
		    data = bytearray(whole)
		    for _ in range(8):
		        data[random.choice((random.randrange(64), random.randrange(900),
		                            random.randrange(len(data) - 2500, len(data))))] = random.randrange(256)
		    open("damaged", "wb").write(data)
		    os.chmod("damaged", 0o755)
		    status = subprocess.run([os.environ["top_builddir"] + "/pinalloc", "check",
		                             "./damaged"], capture_output=True, timeout=20).returncode
		    assert 0 <= status <= 2, (i, status)
	END
}

@test "a library that is missing, or whose path LD_PRELOAD cannot express, is reported" {
	mkdir bin
	cp "$pinalloc" bin
	run -127 --separate-stderr bin/pinalloc run true
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ "$stderr" == *"/libpinalloc.so is not there or cannot be read: install it (make install)" ]]
	mkdir lib
	cp "$library" lib
	[ "$(bin/pinalloc run printenv LD_PRELOAD)" = "$PWD/lib/libpinalloc.so" ]
	mkdir 'two words'
	cp -r bin lib 'two words'
	run -127 --separate-stderr 'two words/bin/pinalloc' run true
	[[ "$stderr" == *"LD_PRELOAD cannot name a path with a space or a colon: install it elsewhere" ]]
}
