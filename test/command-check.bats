#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: `pinalloc check` reports before the job what will not work here, and the cure. This host
# has no device; test/lab/check.bats tests with one.
load helper
load check

setup() {
	cd "$BATS_TEST_TMPDIR"
	ordinary=(setpriv --inh-caps=-ipc_lock --bounding-set=-ipc_lock)
	[ ! -d /sys/class/infiniband ] || [ -z "$(ls /sys/class/infiniband)" ]
}

@test "without a device that check fails, and all others are made" {
	finds fail device 'no RDMA device.*driver'
	says ok library "$library"
	says ok environment nothing
	says ok memlock
	[ "$(grep -vcE '^(ok  |warn|fail)  [a-z ]+: .' <<< "$output")" -eq 0 ]
}

@test "where no process can be started, that is said" {
	checked "$programs/filtered" clone EPERM "$pinalloc" check true
	says fail library 'no process can be started .*ulimit -u.*Operation not permitted'
	says ok program
	finds fail library 'no process .*ulimit -n.*Too many open files' strace -f -o calls -e inject=memfd_create:error=EMFILE
}

# Larger limits are tested in test/lab: raising them takes privileges.
@test "the limit on locked memory is compared with what is needed" {
	finds fail memlock '1\.0 MiB.*limits\.conf.*slurm\.conf' prlimit --memlock=1048576:1048576 "${ordinary[@]}"
	# What is said of the heap is in line with that.
	says ok pinned 'up to [0-9.]* KiB of the heap of each process may be pinned'
	finds fail memlock '64\.0 KiB.*limits\.conf' prlimit --memlock=65536:131072 "${ordinary[@]}"
	says ok environment
	finds ok memlock '64\.0 KiB.*CAP_IPC_LOCK' prlimit --memlock=65536:65536
}

@test "no line promises more than the limit on locked memory" {
	finds fail memlock '8\.0 MiB' prlimit --memlock=8388608:8388608 "${ordinary[@]}" env SLURM_TASKS_PER_NODE=4
	grep -oE 'may pin [0-9.]+ .iB' <<< "$output" | sort -u > promised
	[ "$(< promised)" = 'may pin 8.0 MiB' ]
}

@test "a limit on addresses is reported as the library finds it" {
	finds warn environment 'the heap can grow to 2\.[0-9] GiB at most.*ulimit -v' limited -v 4000000
	says ok library
	finds fail library 'address space.*ulimit -v' limited -v 14000
}

@test "userfaultfd is tested by a call" {
	finds ok userfaultfd 'the library notices'
	finds warn userfaultfd 'Operation not permitted.*seccomp' "$programs/filtered" userfaultfd EPERM
	finds warn userfaultfd 'PINALLOC_WATCH: off; .*unset' env PINALLOC_WATCH=off strace -f -o trace
	run ! grep userfaultfd trace
}

@test "unknown options and bad values are reported" {
	# Of the last one glibc's loader, since 2.41, has something to say as well.
	run -2 env PINALLOC_PREALLOC=4X PINALLOC_FOO=1 MALLOC_ARENA_MAX=many "$pinalloc" check
	echo "$output"
	says warn environment 'PINALLOC_PREALLOC=4X.*size.*keeping 0'
	says warn environment PINALLOC_FOO=1
	! grep '^pinalloc' <<< "$output" || false
	says warn environment MALLOC_ARENA_MAX=many
	run -1 grep 'nothing is set' <<< "$output"
	finds warn environment PINALLOC_REGISTER=OFF env PINALLOC_REGISTER=OFF
	[ "$(grep -c environment <<< "$output")" -eq 1 ]
	finds ok environment '' env PINALLOC_REPORT="$PWD/%h.json" PINALLOC_PREALLOC=4M
}

@test "settings of other software that conflict with the heap are reported" {
	finds fail environment 'UCX_MEM_MMAP_HOOK_MODE=reloc.*unset' env UCX_MEM_MMAP_HOOK_MODE=reloc
	local no
	for no in n No 0; do
		finds ok environment '' env UCX_MEM_MMAP_HOOK_MODE=reloc UCX_MEM_MALLOC_RELOC=$no
	done
	finds warn environment PINALLOC_REGISTER=off env PINALLOC_REGISTER=off
	says ok library
	finds ok environment nothing env OMPI_MCA_mpi_leave_pinned=1 MALLOC_CONF=narenas:4
	finds ok 'huge pages' 'may have huge pages' env GLIBC_TUNABLES=glibc.malloc.hugetlb=1
}

@test "a library that cannot be loaded, or does not replace malloc, is reported" {
	local pinalloc=./pinalloc
	mkdir .libs
	cp "$top_builddir/pinalloc" .
	printf 'nonsense' > .libs/libpinalloc.so
	finds fail library 'libpinalloc\.so.*cannot be preloaded'
	echo 'int nothing;' | gcc -shared -o .libs/libpinalloc.so -x c -
	finds fail library 'libpinalloc\.so does not take over malloc: .*'
	gcc -shared -fPIC -o .libs/libpinalloc.so -x c - <<- 'END'
		#include <stdio.h>
		#include <stdlib.h>
		#include <unistd.h>

		void *__libc_malloc(size_t n);

		void *malloc(size_t n)
		{
			return __libc_malloc(n);
		}

		__attribute__((destructor)) static void end(void)
		{
			fputs(getenv("SAYS"), stderr);
			fflush(stdout);
			_exit(atoi(getenv("STATUS")));
		}
	END
	finds ok library 'libpinalloc\.so takes over malloc' env SAYS= STATUS=0
	finds fail library 'does not take over malloc: it was not loaded, or another comes before it' env SAYS= STATUS=1
	rm .libs/libpinalloc.so
	finds fail library 'libpinalloc\.so.*not there'
}

@test "a program is checked as by pinalloc run" {
	local how program regex
	gcc -static -o static -x c - <<< 'int main(void) { return 0; }'
	install /etc/passwd passwd
	while read -r how program regex; do
		checked "$pinalloc" check "$program"
		says "$how" program "$regex"
	done <<- 'END'
		ok true true
		fail ./static \./static does not load the library: statically linked; link it .*
		fail /etc/passwd /etc/passwd: Permission denied
		fail ./passwd \./passwd is no program; .*
		fail no-such-program no-such-program: No such file or directory
	END
	checked "$pinalloc" check ''
	says fail program ': No such file or directory'
	checked env PINALLOC_PROGRAMS='app*' "$pinalloc" check true
	says warn program 'true.*PINALLOC_PROGRAMS.*app\*'
}

# agrees WHERE PROGRAM: check says of the program what is so if it runs under the library. WHERE is a command that
# runs another one there, of which words are separated by spaces.
agrees() {
	local said runs
	# shellcheck disable=SC2086 # words
	said=$($1 "$pinalloc" check "$2" | grep ' program: ')
	# shellcheck disable=SC2086
	runs=$($1 env LD_PRELOAD="$library" PINALLOC_REPORT=stderr "$2" 2>&1 > /dev/null) || true
	echo "$1 $2: $said; runs: $runs"
	if [[ "$runs" == 'pinalloc: '*', process '* ]]; then
		[[ "$said" == 'ok '* ]]
	else
		[[ "$said" == 'fail '*' program: '*[a-z]* ]]
	fi
}

# linked NAME FLAGS…: a program that needs a library, and links to it.
linked() {
	mkdir -p "trees/$1/bin" view
	gcc -o "trees/$1/bin/$1" -x c - -Ltrees/lib -lneeded "${@:2}" <<< 'int needed(void); int main(void) { return needed(); }'
	ln -s "../trees/$1/bin/$1" "view/$1"
	ln -s "$PWD/view/$1" "view/$1-again"
}

@test "what check says of a program is so, behind links, and with paths that depend on these" {
	local where program places=(env 'unshare -mpf hidden') n=0
	mkdir -p trees/lib tools
	printf '#!/bin/sh\nmount -t proc -o hidepid=2 none /proc && exec "$@"\n' > tools/hidden
	chmod +x tools/*
	gcc -shared -fPIC -o trees/lib/libneeded.so -x c - <<< 'int needed(void) { return 0; }'
	linked rpath -Wl,--disable-new-dtags '-Wl,-rpath,$ORIGIN/../../lib'
	linked wrong '-Wl,-rpath,$ORIGIN/../lib'
	linked none
	for where in "${places[@]}"; do
		for program in trees/*/bin/* view/*; do
			PATH=$PWD/tools:$PATH agrees "$where" "$PWD/$program"
			n=$((n + 1))
		done
	done
	cd view
	for program in rpath none-again; do PATH=$PWD:$PATH agrees env "$program"; done
	[ "$n" -ge 18 ]
}

@test "what check says of a script is so, by what its first line names" {
	local line n=0
	gcc -static -o static -x c - <<< 'int main(void) { return 0; }'
	ln -s "$(type -P bash)" shell
	printf '#!%s/shell\n' "$PWD" > script && chmod +x script
	while IFS= read -r line; do
		printf '#!%b\n' "${line//HERE/$PWD}" > run-it
		chmod +x run-it
		PATH=$PWD:$PATH agrees env ./run-it
		n=$((n + 1))
	done <<- 'END'
		/bin/bash
		 /bin/bash -e
		/usr/bin/env bash
		/usr/bin/env -S bash -e
		/usr/bin/env -S A=B bash
		/usr/bin/env static
		/usr/bin/env no-such-interpreter
		HERE/shell
		HERE/static
		HERE/script
		shell
		./static
		/no/such/interpreter
		/etc/passwd
		/bin/bash\r
	END
	[ "$n" -eq 15 ]
}

# heap_is REGEX SETTINGS RUNNER…: what the line on the library says there. Settings are separated by spaces.
heap_is() {
	# shellcheck disable=SC2086 # words
	run env $2 "${@:3}" "$pinalloc" check
	echo "$2 ${*:3}: $output"
	says "${1%% *}" library "${1#* }"
}

@test "whether malloc is the library's does not depend on who preloads, reports or is left out" {
	local preloads=(TZ= "LD_PRELOAD=$library" "LD_PRELOAD=$library:$library" "LD_PRELOAD=/none.so:$library"
		LD_PRELOAD=/none/libpinalloc.so)
	local programs=(TZ= PINALLOC_PROGRAMS=pinalloc PINALLOC_PROGRAMS=dyn)
	local reports=(TZ= "PINALLOC_REPORT=$PWD/%r.json" PINALLOC_REPORT=/none/%p.json)
	local runners=(env "$pinalloc run --" "$pinalloc run --register=off --") i a b c d n=0
	for ((i = 0; i < 135; i++)); do
		((a = i / 27, b = i / 9 % 3, c = i / 3 % 3, d = i % 3)) || true
		# Not each of these with each, but any two of them.
		(((a + b + c) % 3 == 0 && (a + 2 * b + d) % 3 == 0)) || continue
		# shellcheck disable=SC2086 # words
		heap_is "ok $library takes over malloc" "${preloads[a]} ${programs[b]} ${reports[c]}" ${runners[d]}
		n=$((n + 1))
	done
	[ "$n" -eq 15 ]
	heap_is "ok $library takes" PMI_RANK=0 "$pinalloc" run -- bash -c '"$@"; true' bash
	heap_is "ok $library takes" LD_DEBUG=all env
	heap_is 'fail .*malloc: .*libpinalloc.* static TLS block' LD_AUDIT=/none.so env
}

@test "options are those of pinalloc run, and arguments of the program do not count" {
	local line
	for line in 'ls -l /' '-- ls -l /' '--register=off --max-pinned=1G ls --help'; do
		# shellcheck disable=SC2086 # words
		checked "$pinalloc" check $line
		says ok program '.*/ls can be preloaded'
	done
	says warn environment PINALLOC_REGISTER=off
	for line in env 'prlimit --memlock=0 unshare -rm'; do
		# shellcheck disable=SC2086 # words
		checked $line "$pinalloc" check --max-pinned=0
		says warn pinned 'nothing of the heap may be pinned.*unset PINALLOC_MAX_PINNED'
	done
	finds warn pinned 'nothing of the heap may be pinned.*raise ulimit -l' prlimit --memlock=0 unshare -rm
	run -64 --separate-stderr "$pinalloc" check --sizes=1
	[[ "${stderr_lines[0]}" == 'pinalloc check: '*sizes* ]]
	[ -z "$output" ]
}
