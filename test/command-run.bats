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
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ "$stderr" =~ ^pinalloc\ run:\ $line$ ]]
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
		grep -qx -- "  --$flag=VALUE" <<< "$output"
		value=$(PINALLOC_HELP=1 preloaded true | sed -n "s/^$name .*(\(.*\))$/\1/p")
		[ "$("$pinalloc" run "--$flag=$value" printenv "$name")" = "$value" ]
		[ "$("$pinalloc" run "--$flag" "$value" printenv "$name")" = "$value" ]
	done
}

@test "an option's former name sets it, and one line says the present one" {
	run -0 --separate-stderr "$pinalloc" run --reserve=3M printenv PINALLOC_PREALLOC
	[ "$output" = 3M ]
	[ "$stderr" = 'pinalloc run: --reserve is called --prealloc now' ]
	run -0 --separate-stderr "$pinalloc" run --restrict='a*' printenv PINALLOC_PROGRAMS
	[ "$output" = 'a*' ]
	[ "$stderr" = 'pinalloc run: --restrict is called --programs now' ]
}

@test "--help has the same sentence for each option as PINALLOC_HELP" {
	run -0 "$pinalloc" run --help
	[[ "$output" == "usage: pinalloc run "* ]]
	diff <(sed -n '/^  --log=/,$s/^  *//p' <<< "$output" | grep -v '^--') \
		<(PINALLOC_HELP=1 preloaded true | sed -E 's/^[PM][A-Z_]+ +//; s/^ +//; s/ +$//')
}

@test "a bad value, option or command line is refused before the program runs" {
	local setting
	for setting in log=banana report= register=sometimes access=read,execute max-pinned=101% \
		grow=4X grow=1M arena-max=many perturb=-1 top-pad=0x10; do
		refused 64 "--$setting is not understood: it takes .*" "--$setting" touch ran
	done
	refused 64 'unknown option --growth=4M; .*' --growth=4M touch ran
	refused 64 'unknown option -x; .*' -nx touch ran
	refused 64 '--grow needs a value; see pinalloc run --help' --grow
	refused 64 'no COMMAND; .*' --grow=4M --
	refused 64 'no COMMAND; .*'
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

@test "--dry-run prints the command in shell syntax, and does not run it" {
	local line
	line=$("$pinalloc" run --dry-run --report="$BATS_TEST_TMPDIR/it's %r.json" --top-pad 1M -- \
		bash -c 'touch ran; printf "<%s>" "$@" "$PINALLOC_REPORT" "$MALLOC_TOP_PAD_"' \
		bash 'two words' '' "a'b" '$HOME' $'new\nline' '*' plain)
	[ ! -e ran ]
	run -0 bash -c "$line"
	[ "$output" = "<two words><><a'b><\$HOME><new"$'\n'"line><*><plain><$BATS_TEST_TMPDIR/it's %r.json><1048576>" ]
	[ -e ran ]
	[ "$("$pinalloc" run -n true)" = "env LD_PRELOAD=$library true" ]
}

@test "with an audit library a program has room for the library, and keeps its other tunables" {
	local room=glibc.rtld.optional_static_tls=8192 other=glibc.malloc.perturb=0
	build_audit
	run -127 --separate-stderr env LD_AUDIT=./audit.so LD_PRELOAD="$library" true
	[[ "$stderr" == *'cannot allocate memory in static TLS block' ]]
	tunables() { # LD_AUDIT GLIBC_TUNABLES
		LD_AUDIT=$1 GLIBC_TUNABLES=$2 "$pinalloc" run --log=info bash -c \
			'grep -qw libpinalloc.so /proc/self/maps && echo "$GLIBC_TUNABLES"'
	}
	[ "$(tunables ./audit.so '')" = $room ]
	[ "$(tunables ./audit.so $other)" = $other:$room ]
	[ "$(tunables ./audit.so $room:$other)" = $room:$other ]
	[ "$(tunables '' $other)" = $other ]
	[ "$(LD_AUDIT=./audit.so "$pinalloc" run -n true)" = \
		"env LD_PRELOAD=$library GLIBC_TUNABLES='$room' true" ]
	[ "$("$pinalloc" run -n true)" = "env LD_PRELOAD=$library true" ]
}

@test "a statically linked program is recognised, whether position-independent or not" {
	echo 'int main(void) { return 0; }' > program.c
	gcc -static -o static program.c
	gcc -static-pie -o static-pie program.c
	gcc -o dynamic program.c
	warned '%s is statically linked, so no library is loaded into it; link it dynamically' \
		./static
	warned '%s is statically linked, so no library is loaded into it; link it dynamically' \
		./static-pie
	silent ./dynamic
	silent "$(readelf -p .interp dynamic | grep -o '/.*')" ./dynamic
}

@test "a program with its own malloc is recognised, hidden or exported, stripped or not" {
	local line='%s has a malloc of its own, whose heap is not registered; link it without that malloc'
	warned "$line" "$programs/ownmalloc"
	strip -o stripped "$programs/ownmalloc"
	warned "$line" ./stripped
	gcc -O2 -fno-builtin -fvisibility=hidden -o hidden "$top_srcdir/test/programs/ownmalloc.c"
	warned "$line" ./hidden
	silent "$programs/grow" 1
}

@test "a program built with a sanitizer is recognised" {
	local kind runtime
	for kind in address thread leak; do
		gcc -fsanitize=$kind -o $kind -x c - <<< 'int main(void) { return 0; }'
		runtime=$(readelf -d $kind | grep -o 'lib[alt]san[^]]*')
		warned "%s has the malloc of a sanitizer ($runtime), and runs without this library; build it without -fsanitize" ./$kind
	done
	gcc -fsanitize=undefined -o undefined -x c - <<< 'int main(void) { return 0; }'
	silent ./undefined
}

@test "a program with elevated privileges is recognised" {
	cp "$(type -P true)" owned
	chmod 755 . owned
	chown 65534 owned
	silent ./owned
	chmod u+s owned
	warned '%s has privileges of its own (set-user-ID), so LD_PRELOAD is ignored; use a copy without them, or preload only in what it starts' ./owned
	chown 0:65534 owned
	chmod 2755 owned
	warned '%s has privileges of its own (set-group-ID), so LD_PRELOAD is ignored; use a copy without them, or preload only in what it starts' ./owned
}

@test "a program for another architecture or C library is recognised" {
	local other=$'\x28' # ARM
	cp "$(type -P true)" other
	printf %s "$other" | dd of=other bs=1 seek=18 conv=notrunc status=none
	run -0 --separate-stderr "$pinalloc" run -n ./other
	[[ "$stderr" == 'pinalloc run: ./other is for another kind of machine (64-bit, ELF machine 40) than libpinalloc.so; build both for the same one' ]]
	echo 'int main(void) { return 0; }' |
		gcc -Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1 -o musl -x c -
	run -0 --separate-stderr "$pinalloc" run -n ./musl
	[ "$stderr" = 'pinalloc run: ./musl is for another C library, whose loader is /lib/ld-musl-x86_64.so.1; link it with glibc' ]
}

@test "for a script, the interpreter is checked, also if it is found through PATH" {
	gcc -static -o static -x c - <<< 'int main(void) { return 0; }'
	printf '#! %s -x\n' "$PWD/static" > script
	printf '#!%s\n' "$PWD/script" > outer
	printf '#!/bin/sh\n' > shell
	printf 'exit 0\n' > bare
	chmod +x script outer shell bare
	run -0 --separate-stderr "$pinalloc" run ./outer
	[[ "$stderr" == "pinalloc run: $PWD/static is statically linked,"* ]]
	run -0 --separate-stderr env PATH="$PWD:$PATH" "$pinalloc" run script
	[[ "$stderr" == "pinalloc run: $PWD/static is statically linked,"* ]]
	mkdir -p decoy/script
	run -0 --separate-stderr env PATH="$PWD/decoy::/usr/bin" "$pinalloc" run script
	[[ "$stderr" == "pinalloc run: $PWD/static is statically linked,"* ]]
	silent ./shell
	silent ./bare
	printf '#!%s\n' "$PWD/loop" > loop
	chmod +x loop
	run -126 --separate-stderr "$pinalloc" run ./loop
	[ "${#stderr_lines[@]}" -eq 1 ]
}

@test "a truncated or damaged executable does no harm" {
	local size
	cp "$programs/ownmalloc" whole
	for size in 1 4 20 63 64 100 700 2000 5000 12000 $(($(stat -c %s whole) - 100)); do
		head -c "$size" whole > cut
		chmod +x cut
		run --separate-stderr "$pinalloc" run -n ./cut
		[ "$status" -eq 0 ]
		[ "${#stderr_lines[@]}" -le 1 ]
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
		    status = subprocess.run([os.environ["top_builddir"] + "/pinalloc", "run", "-n",
		                             "./damaged"], capture_output=True, timeout=20).returncode
		    assert status == 0, (i, status)
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

# site: a copy of the command, and in $conf the path of its site's defaults.
site() {
	mkdir -p one/two/three/bin/.libs
	cp "$pinalloc" one/two/three/bin
	ln -s "$library" one/two/three/bin/.libs
	pinalloc=$PWD/one/two/three/bin/pinalloc
	conf=$("$pinalloc" run --help | sed -n 's/^nor .* may be set in \(.*\)\.$/\1/p')
	[[ $conf == "$PWD"/*/pinalloc.conf ]]
	mkdir -p "${conf%/*}"
	conf=$(realpath "$conf")
}

@test "what neither options nor the environment set comes from the site's defaults" {
	site
	silent true
	cat > "$conf" <<- 'END'
		# a comment

		PINALLOC_GROW=4M
		  PINALLOC_REPORT = /scratch/a b=%r.json
		PINALLOC_ACCESS=local
		MALLOC_ARENA_MAX=3
	END
	silent true
	run -0 --separate-stderr env PINALLOC_ACCESS=read "$pinalloc" run --grow=8M bash -c \
		'echo "$PINALLOC_GROW|$PINALLOC_REPORT|$PINALLOC_ACCESS|$MALLOC_ARENA_MAX"'
	[ "$output" = '8M|/scratch/a b=%r.json|read|3' ]
	[ "$(PINALLOC_ACCESS=read "$pinalloc" run -n --grow=8M true)" = "env LD_PRELOAD=$library \
PINALLOC_REPORT='/scratch/a b=%r.json' PINALLOC_GROW=8M MALLOC_ARENA_MAX=3 true" ]
	# The library does not look for the file.
	[ -z "$(LD_PRELOAD=$library printenv PINALLOC_GROW)" ]
}

@test "a line of the site's defaults that is wrong is named, and the program runs" {
	site
	# wrong LINE COMPLAINT: of a line between two that are right.
	wrong() {
		printf 'PINALLOC_REGISTER=lazy\n%s\nPINALLOC_WATCH=off\n' "$1" > "$conf"
		run -0 --separate-stderr "$pinalloc" run bash -c 'echo "$PINALLOC_REGISTER $PINALLOC_WATCH"'
		[ "$output" = 'lazy off' ]
		echo "said: $stderr"
		[ "$stderr" = "pinalloc run: $conf:2: $2" ]
	}
	wrong 'PINALLOC_GROW=4X' 'PINALLOC_GROW=4X is not understood: it takes a size from 2M up; correct the line'
	wrong 'PINALLOC_GROW=' 'PINALLOC_GROW= is not understood: it takes a size from 2M up; correct the line'
	wrong 'PINALLOC_GROWTH=4M' 'PINALLOC_GROWTH: there is no such option; pinalloc run --help lists them'
	wrong 'export PINALLOC_GROW=4M' 'export PINALLOC_GROW: there is no such option; pinalloc run --help lists them'
	wrong 'PINALLOC_HELP=1' 'PINALLOC_HELP: there is no such option; pinalloc run --help lists them'
	wrong 'UCX_TLS=rc' 'UCX_TLS: there is no such option; pinalloc run --help lists them'
	wrong 'PINALLOC_GROW="4M"' 'PINALLOC_GROW="4M": quotes are taken literally here; write the value without quotes'
	wrong 'PINALLOC_REGISTER=off' 'PINALLOC_REGISTER is set again: the first value holds; remove one of the lines'
	wrong '=4M' ': there is no such option; pinalloc run --help lists them'
	wrong $'no setting\e[2J' 'no setting?[2J: not a setting; write NAME=VALUE, or # before a comment'
	wrong "$(printf 'x%.0s' {1..9000})=" "$(printf 'x%.0s' {1..40})...: there is no such option; pinalloc run --help lists them"
	rm "$conf"
	mkdir "$conf"
	run -0 --separate-stderr "$pinalloc" run true
	echo "said: $stderr"
	[ "$stderr" = "pinalloc run: $conf: Is a directory; make it a file that everybody may read" ]
}

@test "site's defaults of any bytes do no harm" {
	site
	python3 - "$pinalloc" "$conf" <<- 'END'
		import random, subprocess, sys
		random.seed(1)
		words = [b"PINALLOC_GROW", b"PINALLOC_REPORT", b"=", b"4M", b"#", b"\n", b"\0", b"\r", b" ",
		         b"\xff", b"\xc3", b"'", b"x" * 5000, b"%r", b"\x1b["]
		for i in range(60):
		    with open(sys.argv[2], "wb") as conf:
		        conf.write(b"".join(random.choice(words) for _ in range(random.randrange(40))))
		    done = subprocess.run([sys.argv[1], "run", "-n", "true"], capture_output=True, timeout=20)
		    assert done.returncode == 0, (i, done)
		    assert all(line.startswith(b"pinalloc run: ") and b"\x1b" not in line
		               for line in done.stderr.splitlines()), (i, done.stderr)
	END
}
