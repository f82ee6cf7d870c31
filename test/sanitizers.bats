#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: programs built with a sanitizer, whose malloc must come first, run as without the
# library, and one line says that it is not used.

setup_file() {
	cat > "$BATS_FILE_TMPDIR/program.c" <<- 'END'
		#include <stdio.h>
		#include <stdlib.h>
		#include <string.h>

		int main(int argc, char **argv)
		{
			volatile char *p = malloc(100);

			p[0] = argc;
			for (int i = 0; i < argc; i++)
				printf("<%s>", argv[i]);
			puts("");
			if (argc > 2 && !strcmp(argv[1], "run"))
				p[0] = system(argv[2]);
			if (argc > 1 && !strcmp(argv[1], "leak")) {
				p = NULL;
				return 0;
			}
			free((char *)p);
			return argc > 1 && !strcmp(argv[1], "freed") ? p[0] : 7;
		}
	END
	for kind in address thread leak undefined; do
		gcc -w -g -fsanitize=$kind -o "$BATS_FILE_TMPDIR/$kind" "$BATS_FILE_TMPDIR/program.c"
	done
	printf '#!%s by\nscript\n' "$BATS_FILE_TMPDIR/address" > "$BATS_FILE_TMPDIR/script"
	chmod +x "$BATS_FILE_TMPDIR/script"
}

setup() {
	load helper
	cd "$BATS_FILE_TMPDIR"
}

# same STATUS PROGRAM [ARGUMENT…]: ends with this status and prints the same with the library as
# without, plus one line.
same() {
	local status_plain=0 plain
	plain=$("${@:2}" 2> "$BATS_TEST_TMPDIR/plain") || status_plain=$?
	[ "$status_plain" -eq "$1" ]
	run --separate-stderr preloaded "${@:2}"
	echo "$output, status $status, $stderr"
	[ "$status" -eq "$1" ]
	[ "$output" = "$plain" ]
	[ "$(grep -c '^pinalloc' <<< "$stderr")" -eq 1 ]
	[[ "$stderr" =~ ^pinalloc\[[0-9]+\]:\ [a-z]+\ has\ the\ malloc\ of\ a\ sanitizer\ \(lib[alt]san\.so\.[0-9]+\), ]]
}

@test "programs with a sanitizer run as without the library, with the same arguments" {
	local kind
	for kind in address thread leak; do
		same 7 ./$kind 'two words' '' $'a\nline' '$HOME'
		same 7 env PATH="$PWD" $kind
	done
}

@test "sanitizers find the errors they look for" {
	same 1 ./address freed
	[[ "$stderr" == *heap-use-after-free* ]]
	same 66 ./thread freed
	[[ "$stderr" == *heap-use-after-free* ]]
	same 23 ./leak leak
	[[ "$stderr" == *"detected memory leaks"* ]]
}

@test "such a program keeps its name, also as the interpreter of a script" {
	same 7 ./script
	[ "$output" = "<$PWD/address><by><./script>" ]
	same 7 bash -c 'exec -a another ./thread'
	[ "$output" = "<another>" ]
	same 7 ./address run 'cat /proc/$PPID/comm'
	[[ "$output" == address* ]]
}

# left [PRELOAD]: what remains in LD_PRELOAD for children of a program with a sanitizer.
left() {
	env FIRST=1 LD_PRELOAD="$1" LAST=2 "$BATS_FILE_TMPDIR/thread" run \
		'echo "$FIRST<${LD_PRELOAD-none}>$LAST"' 2> "$BATS_TEST_TMPDIR/said" | head -n 1
}

@test "its environment, and that of its children, lacks only the library" {
	[ "$(left "$library")" = '1<none>2' ]
	[ "$(left "$library:$library")" = '1<none>2' ]
	[ "$(left "$library libz.so.1")" = '1<libz.so.1>2' ]
	[ "$(left "libz.so.1:$library")" = '1<libz.so.1:>2' ]
	[ "$(left "libz.so.1 $library:libm.so.6")" = '1<libz.so.1 libm.so.6>2' ]
	cd "$(dirname "$library")"
	[ "$(left ./libpinalloc.so)" = '1<none>2' ]
	[ "$(LD_LIBRARY_PATH=$PWD left libpinalloc.so)" = '1<none>2' ]
}

@test "a sanitizer that the user preloads first stays first" {
	local runtime
	runtime=$(ldd ./address | awk '/libasan/ { print $3 }')
	library="$runtime $library"
	run -7 --separate-stderr preloaded ./address
	[[ "$stderr" == *"malloc is answered by $runtime: "* ]]
}

@test "if the library was not loaded through LD_PRELOAD, nothing is restarted" {
	gcc -w -fsanitize=thread -o linked program.c -L"$(dirname "$library")" -Wl,--no-as-needed -lpinalloc \
		-Wl,-rpath,"$(dirname "$library")"
	run timeout 60 strace -f -e trace=execve -o calls ./linked
	[ "$(grep -c execve calls)" -le 2 ] # ThreadSanitizer may start itself again
	run timeout 60 strace -f -e trace=execve -o calls -E LD_PRELOAD="$library" ./linked
	[ "$(grep -c execve calls)" -le 3 ]
}

@test "with PINALLOC_LOG=error nothing is printed" {
	run -7 --separate-stderr preloaded PINALLOC_LOG=error ./address
	[ -z "$stderr" ]
}

@test "a program with a sanitizer that has no malloc runs with the library" {
	run -7 --separate-stderr preloaded ./undefined run 'echo "$LD_PRELOAD"'
	[[ "$output" == "$library"* ]]
	[ -z "$stderr" ]
}
