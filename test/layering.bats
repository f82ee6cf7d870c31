#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: preload uses regpool, regpool uses allocator, never the other way, and modules do not use
# each other in a cycle. Some things are done in one place only. Functions stay short, and sources look alike.
load helper

setup_file() {
	export code=$BATS_FILE_TMPDIR/code
	mkdir "$code"
	cd "$top_srcdir"
	cp --parents allocator/*.[ch] allocator/*.def regpool/*.[ch] preload/*.[ch] preload/report/*.[ch] \
		preload/command/*.[ch] "$code"
	cd "$code"
	# Without comments. What looks like one in a string is none.
	find . -type f -exec perl -0 -pi -e 's{("(?:\\.|[^"\\])*"|\x27.\x27)|/\*.*?\*/|//[^\n]*}{$1 // " "}gse' {} +
}

setup() {
	cd "$code"
}

# clean PATTERN EXAMPLE FILE…: no code in these files matches the pattern, which does match the
# example.
clean() {
	local pattern=$1 example=$2
	shift 2
	grep -E "$pattern" <<< "$example"
	run grep -nE "$pattern" /dev/null "$@"
	echo "$output"
	[ "$status" -eq 1 ]
}

# but FILE…: all files of code, except these.
but() {
	find allocator regpool preload -type f | grep -vxF "$(printf '%s\n' "$@")"
}

@test "sources look as one release of each tool wants them; no other release is asked" {
	cd "$BATS_TEST_TMPDIR" && mkdir bin
	printf '#!/bin/sh\necho version 99.0: all is wrong\n[ "$1" = --version ]\n' | tee bin/clang-format > bin/shellcheck
	sed s/99/14/ bin/shellcheck > bin/clang-format-14
	chmod +x bin/*
	PATH=$PWD/bin:$PATH run -1 "$top_srcdir/test/analyze" --style
	[[ "$output" == *'14.0: all is wrong'*'shellcheck 0.9 is not here, '* && "$output" != *99* ]]
	rm bin/shellcheck bin/clang-format-14
	PATH=$PWD/bin:$PATH run "$top_srcdir/test/analyze" --style
	echo "$output"
	[ "$status" -ne 77 ] || not_here "how sources look" "there is no $(sed -n 's/ is not here.*//p' <<< "$output" | paste -sd ,)"
	[ "$status" -eq 0 ]
}

# longest FILE…: of each its longest function in C.
longest() {
	awk 'function tell() { if (file) print file ": longest function", most + 0 }
		FNR == 1 { tell(); file = FILENAME; most = start = 0 }
		/^\{/ { start = FNR }
		/^\}/ && start { if (FNR - start > most) most = FNR - start; start = 0 }
		END { tell() }' "$@"
}

# Of those lines.
too_long='$NF > 60'

# uses: pairs of modules of which the first uses a function or variable of the second with a name of
# ours. Functions that replace the C library's are reached through it, so they are no dependency.
uses() {
	local source objects=()
	for source in allocator/*.c regpool/*.c preload/*.c preload/report/*.c; do
		objects+=("${source%/*}/.libs/lib*_la-$(basename "$source" .c).o")
	done
	for source in preload/command/*.c; do
		objects+=("${source%/*}/pinalloc-$(basename "$source" .c).o")
	done
	(cd "$top_builddir" && nm -A ${objects[@]}) |
		sed -nE -e 's|^([a-z/]+)/\.libs/lib[a-z]+_la-([a-z-]+)\.o:[0-9a-f ]* ([A-Z]) (pin_\w+)$|\1/\2 \3 \4|p' \
			-e 's|^([a-z/]+)/pinalloc-([a-z-]+)\.o:[0-9a-f ]* ([A-Z]) (cmd_\w+)$|\1/\2 \3 \4|p' |
		awk '$2 == "U" { users[$1 " " $3]; next }
			{ owner[$3] = $1 }
			END {
				for (user in users) {
					split(user, pair)
					if (pair[2] in owner) print pair[1], owner[pair[2]]
				}
			}'
}

# includes: pairs of modules of which the first includes the header of the second.
includes() {
	grep -HoE '^#include "[a-z/-]+\.h"' {allocator,regpool,preload,preload/report}/*.[ch] |
		sed -nE 's|^([a-z/-]+)\.[ch]:#include "([a-z/-]+)\.h"$|\1 \2|p' | awk '$1 != $2'
}

@test "allocator uses neither regpool nor preload, regpool does not use preload" {
	clean '#include "(regpool|preload)/' '#include "regpool/mr.h"' allocator/*
	clean '#include "preload/' '#include "preload/report/write.h"' regpool/*
	clean '#include "(test|bench)/' '#include "test/tap.h"' $(but none)
}

# A module is a .c file with its header. tsort prints the modules of a cycle.
@test "modules do not use each other in a cycle" {
	run ! tsort <<< $'keys evict\nevict places\nplaces keys'
	uses > "$BATS_TEST_TMPDIR/uses"
	grep -qx 'regpool/keys regpool/entries' "$BATS_TEST_TMPDIR/uses"
	grep -qx 'regpool/mr regpool/domain' "$BATS_TEST_TMPDIR/uses"
	grep -qx 'preload/report/process preload/report/rank' "$BATS_TEST_TMPDIR/uses"
	includes > "$BATS_TEST_TMPDIR/includes"
	grep -qx 'regpool/keys regpool/entries' "$BATS_TEST_TMPDIR/includes"
	run -0 tsort < "$BATS_TEST_TMPDIR/includes"
	run tsort < "$BATS_TEST_TMPDIR/uses"
	sed -n 's/^tsort: //p' <<< "$output"
	[ "$status" -eq 0 ]
}

@test "modules of regpool use their own group, and those above it in regpool/DESIGN" {
	{
		sed -nE 's/^    (base|memory|caches|table|life|front) +([a-z ]*[a-z])   .*/\2/p' "$top_srcdir/regpool/DESIGN"
		echo
		printf '%s\n' regpool/*.[ch] | sed -E 's/\.[ch]$/ -/'
		uses
		includes
	} > "$BATS_TEST_TMPDIR/pairs"
	cd "$BATS_TEST_TMPDIR"
	order() {
		awk '/^$/ { is_pairs = 1; next }
			!is_pairs { n++; for (i = 1; i <= NF; i++) group["regpool/" $i] = n; next }
			!/^regpool/ { next }
			!group[$1] || group[$2] > group[$1]' "$@"
	}
	[ "$(grep -c '^$' pairs)" -eq 1 ] && [ "$(wc -l < pairs)" -gt 100 ]
	[ "$(order <(cat pairs <(echo regpool/keys regpool/mr; echo regpool/nowhere -)) | wc -l)" -eq 2 ]
	run -0 order pairs
	[ "$output" = '' ]
}

@test "the command and the library share no object files" {
	clean 'preload/command|jansson' '#include <jansson.h>' $(but none | grep -v ^preload/command)
	clean 'preload/report' '#include "preload/report/write.h"' preload/command/*
	run ! grep -E 'jansson|libelf' <(readelf -d "$top_builddir/.libs/libpinalloc.so")
	run ! grep -E 'pinalloc|verbs' <(readelf -d "$top_builddir/pinalloc" | grep NEEDED)
}

@test "only allocator uses jemalloc, only regpool and the interposers use verbs" {
	clean '<jemalloc|\bje_|\bmallctl' 'extern unsigned je_opt;' \
		$(but preload/malloc.c | grep -v ^allocator)
	clean '<jemalloc|\bje_' 'extern unsigned je_opt;' preload/malloc.c
	clean '#include <infiniband/' '#include <infiniband/verbs.h>' allocator/* \
		$(but preload/verbs.c | grep ^preload)
	clean '\bibv_' 'ibv_reg_mr(pd)' allocator/*
}

@test "only one file walks stacks, and only one finds lines in debug information" {
	clean '<unwind.h>|\b_Unwind_' '#include <unwind.h>' $(but allocator/jemalloc-refused.c)
	clean 'elfutils|\bdwfl_|libdw' '#include <elfutils/libdwfl.h>' \
		$(but preload/command/names.c)
	clean '\bbacktrace *\(|libunwind|\bunw_' 'n = backtrace(frames, 8);' $(but preload/report/stacks.c)
}

@test "the modules that reports are written with do not depend on reports" {
	local tools
	tools=$(find preload/report -name 'stacks.*' -o -name 'report-file.*' \
		-o -name 'output.*' -o -name 'rank.*')
	[ -n "$tools" ]
	clean 'preload/report/(write|collect|process|record)\.h' \
		'#include "preload/report/collect.h"' $tools
}

@test "names defined in the command have a prefix of their own" {
	clean '^[a-z].*\bpin_[a-z_]+\(|^(struct|enum|#define) (pin|PIN)_[a-zA-Z_]+ *(\{|[0-9(])' \
		'struct pin_site {' preload/command/*
}

# The command is a separate program: it passes its environment on to what it runs.
@test "only the options file and the command read the environment" {
	clean 'getenv' 'secure_getenv("HOME")' $(but none | grep -v ^preload/command)
	clean '\b_*environ\b[^"]' 'extern char **environ;' \
		$(but allocator/options.c | grep -v ^preload/command)
}

@test "only one file maps memory, and none unmaps it" {
	clean '\b(mmap|mprotect|madvise|mlock|sbrk|brk) *\(' 'p = mmap(NULL, n' \
		$(but allocator/os.c)
	clean '\b(munmap|mremap|madvise|process_madvise) *\(' 'munmap(p, n);' $(but none)
	clean 'syscall\(SYS_m' 'syscall(SYS_munmap, p, n)' $(but allocator/os.c)
	clean 'MADV_(DONTNEED|DONTNEED_LOCKED|FREE|REMOVE|PAGEOUT|COLD)\b' 'MADV_FREE' $(but none)
	# allocator/os.c advises by numbers from a table of names.
	run -0 grep -o 'SYS_m[a-z]*' allocator/os.c
	[ "$(sort -u <<< "$output")" = $'SYS_madvise\nSYS_msync' ]
	clean 'SYS_madvise,.*[ (][0-9]+\)' 'syscall(SYS_madvise, p, n, 4)' $(but none)
	clean 'MAP_FIXED|PROT_NONE' 'MAP_FIXED | MAP_ANON' $(but allocator/os.c)
	grep -q 'mprotect(' allocator/os.c
}

# Three are what allocator/jemalloc.c replaces, and one it passes on, one tells of threads that only free; the other three may be missing.
@test "private names of jemalloc are declared in one header, and are eight" {
	local names
	clean '\b(je_|malloc_conf)[a-z0-9_]*\(' 'je_malloc(1);' \
		$(but allocator/jemalloc.h allocator/jemalloc.c allocator/blocks.c)
	clean '\bpin_je_[a-z0-9_]*\(' 'pin_je_malloc(1);' \
		$(but preload/malloc.c | grep -v ^allocator)
	names=$(nm "$top_builddir"/allocator/.libs/libpinalloc_la-*.o \
		"$top_builddir"/preload/.libs/libpinalloc_la-*.o |
		sed -nE 's/^.* [A-Z] (__real_|__wrap_)?((je_|malloc_conf_)[a-z0-9_]+)$/\2/p' | sort -u)
	echo "$names"
	[ "$(xargs <<< "$names")" = "je_arena_cache_bin_fill_small je_extent_alloc_mmap je_extent_dalloc_mmap je_opt_retain je_prof_boot2 je_rtree_leaf_elm_lookup_hard je_tsd_cleanup je_tsd_fetch_slow" ]
}

@test "only preload exports" {
	clean 'PIN_EXPORT' 'PIN_EXPORT void *pvalloc' regpool/* $(but allocator/base.h | grep ^allocator)
}

@test "code that runs inside malloc uses no stdio, locale or malloc" {
	clean '<stdio.h>|printf *\(' '#include <stdio.h>' $(but none | grep -v ^preload)
	clean '\b(strto[a-z]+|ato[a-z]+|sscanf|(is|to)(digit|space|upper|lower)|setlocale) *\(' \
		'n = strtoul(text, NULL, 10);' $(but none | grep ^allocator)
	# Pools are made and cut by calls of the program's own, and listeners are found by them.
	clean '\b(m|c|re)alloc *\(|\bfree *\(' 'p = malloc(1);' \
		$(but regpool/listeners.c regpool/userpool.c |
			grep -v ^preload)
}

@test "no function is longer than 60 lines" {
	cd "$top_srcdir"
	find allocator regpool preload bench test -name '*.[ch]' -o -name '*.cc' \
		> "$BATS_TEST_TMPDIR/files"
	longest $(< "$BATS_TEST_TMPDIR/files") > "$BATS_TEST_TMPDIR/lengths"
	[ "$(wc -l < "$BATS_TEST_TMPDIR/lengths")" -eq "$(wc -l < "$BATS_TEST_TMPDIR/files")" ]
	run awk "$too_long" "$BATS_TEST_TMPDIR/lengths"
	echo "$output"
	[ -z "$output" ]
	cd "$BATS_TEST_TMPDIR"
	{ echo '{'; seq 60; echo '}'; echo; } > long.c
	{ echo '{'; seq 59; echo '}'; } > short.c
	[ "$(longest long.c short.c /dev/null | awk "$too_long")" = 'long.c: longest function 61' ]
}

# Stacks of threads may be small.
# bats test_tags=slow
@test "no function that malloc or a verb may call has a frame of more than 2 KiB" {
	local file
	cd "$BATS_TEST_TMPDIR"
	for file in "$top_srcdir"/allocator/*.c "$top_srcdir"/regpool/*.c "$top_srcdir/preload/verbs.c"; do
		gcc -std=gnu11 -O2 -fPIC -I"$top_builddir" -I"$top_srcdir" -fstack-usage -c "$file" \
			-o "$(basename "$file" .c).o"
	done
	cat ./*.su > usage
	[ "$(wc -l < usage)" -gt 300 ]
	run awk '$2 > 2048 || $3 ~ /dynamic/ && $3 !~ /bounded/' usage
	echo "$output"
	[ -z "$output" ]
}

# wanted TEST…: what make builds for these, beside what `make` builds.
wanted() {
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s -C "$top_builddir" wanted-programs TESTS="$*" \
		MAKE=echo AM_MAKEFLAGS= | xargs
}

@test "a test alone has built what it needs, and no other program" {
	local plain
	plain=$(sed -nE '/^plain_bats_tests/,/[^\\]$/p' "$top_srcdir/Makefile.am" | grep -oE 'test/[a-z-]+\.bats')
	[ "$(wc -l <<< "$plain")" -ge 5 ]
	[ -z "$(wanted $plain)" ]
	[ "$(wanted test/unit-os test/docs.bats)" = test/unit-os ]
	[ "$(wanted test/docs.bats test/malloc.bats test/lab/fork.bats)" = check-programs ]
	cd "$top_srcdir"
	run -1 grep -lE '[$](programs|top_builddir"?/test)|test/(inject|stack)' $(grep -v layering <<< "$plain")
}

# What changes the sources where a test has to notice is found by the text there.
@test "each line of test/mutants.list fits the sources" {
	cd "$top_srcdir"
	run -0 test/mutants --list
	[ "${#lines[@]}" -eq "$(grep -c '^[a-z]' test/mutants.list)" ]
}
