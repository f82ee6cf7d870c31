#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: bench/lookup, bench/peaks, bench/scale, bench/watch and bench/allocators measure what
# they claim to. Figures that are exact, because instructions or system calls are counted, hold:
# malloc costs what jemalloc's costs, counting live memory is a small part of it, and unmapping
# unregistered memory costs nothing.

setup_file() {
	load helper
	export figures=$BATS_FILE_TMPDIR/figures
	"$top_srcdir/bench/lookup" --quick "$figures" > "$figures.out" 2>&1 ||
		{ cat "$figures.out"; return 1; }
}

setup() {
	load helper
}

# value WHAT: the second field of that line, which must exist.
value() {
	awk -F '\t' -v what="$1" '$1 == what { print $2; n++ } END { exit n != 1 }' "$figures"
}

# above WHAT LIMIT: that figure exceeds a limit.
above() {
	awk -v x="$(value "$1")" -v y="$2" 'BEGIN { exit !(x > y) }'
}

# met WHAT: that line says that the goal is met.
met() {
	awk -F '\t' -v what="$1" '$1 == what && $7 == "met" { n++ } END { exit n != 1 }' "$figures"
}

@test "bench/lookup has a figure for every contestant, in the table and in the file" {
	local n who
	for who in empty loads pinalloc ucx; do
		for n in 1 100 10000; do
			above "keys $n 1 overlapping $who" 0.1
			above "keys $n 1 waiting $who" 0.1
		done
		above "keys instructions $who" 1
	done
	for who in pinalloc ucx; do
		for n in 4096 1048576 67108864; do
			above "pairs $n 1 one $who" 0.1
		done
	done
	grep -qE '^ *10000 .*(met|missed)' "$figures.out"
	[ "$(nproc)" -lt 2 ] || above "keys 100 2 overlapping ucx" 0.1
	run ! value "keys 7 1 waiting ucx"
}

# Live memory is counted once for each 64 KiB that a thread allocates or frees.
@test "malloc and free from the thread cache take no more instructions than jemalloc's" {
	local n
	for n in 16 1000 14336; do
		above "malloc $n jemalloc" 20
		awk -v a="$(value "malloc $n pinalloc")" -v b="$(value "malloc $n jemalloc")" \
			'BEGIN { exit !(a <= b) }'
	done
}

@test "a look-up takes fewer instructions than a hit in UCX's cache" {
	above "keys instructions ucx" "$(value "keys instructions pinalloc")"
}

@test "the stand-in for libibverbs has the versions the library asks for" {
	local name version there
	there=$BATS_TEST_TMPDIR/libibverbs.so.1
	gcc -std=gnu11 -I"$top_srcdir" -I"$top_builddir" -shared -fPIC -fvisibility=hidden \
		-Wl,--version-script="$top_srcdir/test/fake-ibverbs.map" -o "$there" \
		"$top_srcdir"/test/fake-{ibverbs,verbs}.c
	sed -n 's/^\tSYMBOL(\(.*\), "\(.*\)", .*/ibv_\1 IBVERBS_\2/p' \
		"$top_srcdir/regpool/ibverbs.c" > "$BATS_TEST_TMPDIR/asked"
	[ "$(wc -l < "$BATS_TEST_TMPDIR/asked")" -ge 10 ]
	while read -r name version; do
		nm -D "$there" | grep "T $name@@$version\$"
	done < "$BATS_TEST_TMPDIR/asked"
}

# The churn allocates blocks from slabs, and blocks that are mapped one by one.
@test "bench/peaks has all figures, and counting live memory takes few instructions" {
	local program variant
	figures=$BATS_TEST_TMPDIR/peaks
	"$top_srcdir/bench/peaks" --quick "$figures" > "$figures.out"
	for program in python perl cc1 sort jq churn-small churn-2-threads churn-large; do
		for variant in jemalloc pinalloc report sample; do
			above "$program $variant" 0.1
		done
		grep -qE "^$program .*(met|missed)" "$figures.out"
	done
	for variant in glibc jemalloc pinalloc; do
		above "start $variant" 0.01
	done
	for variant in pinalloc without-lines report sample; do
		above "exit $variant" 0.01
	done
	for program in small large; do
		above "$program instructions jemalloc" 100
		above "$program instructions pinalloc counting" 0.1
		above "$program instructions sample-only walking" \
			"$(value "$program instructions pinalloc walking")"
	done
	above 'small instructions jemalloc' \
		"$(awk -v x="$(value 'small instructions pinalloc')" 'BEGIN { print x / 1.1 }')"
	awk -v x="$(value 'small instructions counting/all')" 'BEGIN { exit !(x < 0.02) }'
	awk -v x="$(value 'large instructions counting/all')" 'BEGIN { exit !(x < 0.05) }'
	run ! value "no such program sample"
}

@test "bench/scale has all figures, and those that do not depend on time meet their goals" {
	local step size n what
	figures=$BATS_TEST_TMPDIR/scale
	"$top_srcdir/bench/scale" --quick "$figures" > "$figures.out"
	for step in 64 2; do
		for size in 1 2 16; do
			for what in p50 p99 max lookup loads stats report report-bytes regions resident; do
				above "growth $step $size $what" 0
			done
		done
		for size in 1 16 256; do
			for what in publish register evict give-up lookup loads register-bytes; do
				above "tables $step $size $what" 0
			done
			met "tables $step $size percent of heap"
		done
		met "growth $step mappings"
	done
	for n in 1 2 8 64; do
		above "threads $n together" "$(value "threads $n live")"
		above "threads $n last" 0
	done
	grep -qE '^     a look-up .*(met|missed)' "$figures.out"
	run ! value "threads 7 last"
}

# columns TITLE: the last three columns of the only line with this title.
columns() {
	awk -v title="$1" '{ line = $0; sub(/^ +/, "", line) }
		index(line, title "  ") == 1 { print $(NF - 2), $(NF - 1), $NF; n++ }
		END { exit n != 1 }' "$figures"
}

@test "bench/watch has all figures, and unmapping unregistered memory is one system call" {
	figures=$BATS_TEST_TMPDIR/watch
	"$top_srcdir/bench/watch" --quick --here > "$figures" 2> "$figures.err" || {
		cat "$figures.err"
		! grep 'userfaultfd(2) is forbidden' "$figures.err" || skip "no userfaultfd(2) here"
		return 1
	}
	[ "$(grep -cE '^   .*( +[0-9]+(\.[0-9])?){3}$' "$figures")" -eq 17 ]
	[ "$(columns 'never: system calls of the caller')" = '100 100 100' ]
	[ "$(columns 'registered: system calls of the caller')" = '100 100 100' ]
	[ "$(grep -c '^       and of the library  *0  *0  *0$' "$figures")" -eq 1 ]
	[ "$(grep -cE '^       messages of the kernel +- +- +(0|100)$' "$figures")" -eq 2 ]
	run -2 "$top_srcdir/bench/watch" --nonsense
	run ! columns 'no such title'
}

# compared PART BENCHMARK CONTESTANT FIGURE: a value in the file that bench/allocators writes.
compared() {
	awk -F '\t' -v key="$1 $2 $3 $4" '$1 " " $2 " " $3 " " $4 == key { print $5; n++ }
		END { exit n != 1 }' "$BATS_TEST_TMPDIR/out/allocators.tsv"
}

# positive PART BENCHMARK CONTESTANT FIGURE: the same, and it must be above 0.
positive() {
	awk -v x="$(compared "$@")" 'BEGIN { exit !(x > 0) }'
}

@test "bench/allocators has a figure for every contestant, in tables, file and plot" {
	local name all="glibc jemalloc mimalloc tcmalloc pinalloc one-arena"
	local benchmark peaks="phases-bands growing grow arrays numpy"
	local out=$BATS_TEST_TMPDIR/out
	"$top_srcdir/bench/allocators" --quick --only speed,start,threads,peak \
		--benchmarks "glibc-simple,refinement,jq,lua,spawn,threads-64,${peaks// /,}" \
		--with 'one-arena=MALLOC_ARENA_MAX=1,MALLOC_CONF=narenas:1,tcache:true' "$out" > "$out.out"
	for name in $all; do
		for benchmark in glibc-simple refinement jq lua spawn; do
			positive speed $benchmark $name cpu_ms
			positive speed $benchmark $name wall_ms
			positive speed $benchmark $name rss_kib
			positive speed $benchmark $name cpu_ratio
		done
		[ $name = jemalloc ] || positive speed all $name geomean_cpu_ratio
		positive start spawn $name cpu_ratio
		positive threads threads-64 $name cpu_ratio
		positive threads threads-64 $name rss_ratio
		for benchmark in $peaks; do
			positive peak $benchmark $name rss_to_live
		done
		positive peak growing $name moved_bytes
		grep -q ">$name<" "$out/allocators.svg"
	done
	for benchmark in $peaks; do
		[ $benchmark = numpy ] || positive peak $benchmark pinalloc mapped_to_live
		# Live memory has been written to.
		awk -v x="$(compared peak $benchmark glibc rss_to_live)" 'BEGIN { exit !(x >= 1) }'
	done
	# A row of a table: the figures of all contestants, after its name.
	grep -qE '^glibc-simple +micro +[0-9]+( +[0-9.]+){5}$' "$out.out"
	grep -qE '^refinement +work +[0-9]+( +[0-9.]+){5}$' "$out.out"
	grep -qE '^jq +[0-9.]+( +[0-9.]+){5}$' "$out.out"
	grep -qE '^phases-bands( +[0-9.]+){9}$' "$out.out"
	grep -qE '^numpy( +[0-9.]+){7} +- +-$' "$out.out"
	grep -qE '^threads-64, MiB( +[0-9.]+){6}$' "$out.out"
	# The blocks that realloc moved.
	grep -qE '^growing( +[0-9.]+){6}$' "$out.out"
	grep -qE '^  growing, resident to live .*(met|missed)' "$out.out"
	grep -qE "^  grow, resident to glibc's .*(met|missed)" "$out.out"
	# The contestant's own goal, not one for all.
	grep -qE "^  numpy, resident to jemalloc's .*<= 1\.12: " "$out.out"
	[ "$(grep -cE '\((<= [0-9.]+): (met|missed)\)$' "$out.out")" -ge 12 ]
	grep -q '^# .*jemalloc 5' "$out/allocators.tsv"
	run ! compared speed sh6 glibc cpu_ms
}

# allocates NAME ARGUMENTS SIZE:PERCENT...: that workload allocates these sizes, according to
# test/count-sizes.c.
allocates() {
	local name=$1 arguments=$2 pair found
	shift 2
	gcc -std=gnu11 -O2 -fno-builtin -pthread -o "$BATS_TEST_TMPDIR/$name" \
		"$top_srcdir/bench/workloads/$name.c" -lm
	LD_PRELOAD=$BATS_TEST_TMPDIR/libcount.so "$BATS_TEST_TMPDIR/$name" $arguments \
		2> "$BATS_TEST_TMPDIR/$name.sizes"
	for pair in "$@"; do
		found=$(awk -v key="${pair%:*}" '$1 == key { print $2 }' "$BATS_TEST_TMPDIR/$name.sizes")
		echo "$name $pair: $found"
		awk -v x="$found" -v y="${pair#*:}" 'BEGIN { exit !(x >= y - 2.5 && x <= y + 2.5) }'
	done
}

# The percentages are those of the published programs; those of sh6 and sh8 follow from their
# source.
@test "the workloads with published names allocate the published sizes" {
	gcc -std=gnu11 -O2 -shared -fPIC -o "$BATS_TEST_TMPDIR/libcount.so" \
		"$top_srcdir/test/count-sizes.c"
	allocates larson '0.02 2' 1024:49.1 512:25.8 256:12.9 128:6.5 64:3.2 foreign:1.1
	allocates alloc-test '0.01 1' 8:50 16:25 32:12.5 64:6.3 128:3.1 foreign:0
	allocates cache-scratch '0.02 2' 1:90 calls:47
	allocates glibc-simple 0.01 16:33.3 32:33.3 64:33.3 foreign:0
	allocates glibc-thread '0.01 2' 4:20.3 8:35.1 16:20.9 32:11.6 64:5.8 128:2.9 foreign:0
	allocates mstress '0.04 2' 8:17.9 16:17.8 32:17.6 64:17.4 128:18.1 256:4.7 512:4.5 foreign:3.7
	allocates xmalloc '0.02 2' 64:100 foreign:100
	allocates sh6 '0.02 2' 1:19.4 2:11.7 4:11.7 8:14.2 16:11.7 32:13 64:10.4 128:5.7 foreign:0
	allocates sh8 '0.02 2' 8:15.7 16:66.7 64:13.3 128:1.4 256:2.7
}

@test "bench/allocators says in one line which program failed, and with what" {
	local broken=$BATS_TEST_TMPDIR/libbroken.so
	gcc -shared -fPIC -o "$broken" -x c - <<-'END'
		#define _GNU_SOURCE
		#include <errno.h>
		#include <string.h>
		#include <unistd.h>
		__attribute__((constructor)) static void end(void)
		{
			if (strcmp(program_invocation_short_name, "glibc-simple"))
				return;
			write(2, "so\nit ends\n", 11);
			_exit(3);
		}
	END
	run -1 "$top_srcdir/bench/allocators" --quick --only speed --benchmarks glibc-simple \
		--with "broken=LD_PRELOAD=$broken"
	[ "$output" = "bench/allocators: glibc-simple with broken failed with status 3: it ends" ]
	run -1 "$top_srcdir/bench/allocators" --quick --only speed --benchmarks glibc-simple \
		--with missing=LD_PRELOAD=/nonexistent/libx.so
	[ "$output" = "bench/allocators: /nonexistent/libx.so, which is missing, cannot be preloaded" ]
}

@test "bench/allocators refuses options it does not know, in one line" {
	local option
	for option in --nonsense --only=slow --rounds=0 --benchmarks=none --with=x --with=glibc=A=1; do
		run -2 "$top_srcdir/bench/allocators" "$option"
		[ "${#lines[@]}" = 1 ]
		[[ $output == "bench/allocators: "* ]]
	done
}
