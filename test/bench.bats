#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: malloc costs what jemalloc's costs, a look-up less than a hit in UCX's cache, counted in
# instructions; and what measures can be started.
load helper

setup_file() {
	export figures=$BATS_FILE_TMPDIR/figures
	"$top_srcdir/bench/lookup" --quick "$figures" > "$figures.out" 2>&1 ||
		{ cat "$figures.out"; return 1; }
}

# value WHAT: the second field of that line, which must exist.
value() {
	awk -F '\t' -v what="$1" '$1 == what { print $2; n++ } END { exit n != 1 }' "$figures"
}

# above WHAT LIMIT: that figure exceeds a limit.
above() {
	awk -v x="$(value "$1")" -v y="$2" 'BEGIN { exit !(x > y) }'
}

# Live memory is counted once for each 64 KiB that a thread allocates or frees. With gcc they are fewer
# than jemalloc's; another compiler than jemalloc's, or one that does not optimize, has some more.
@test "malloc and free from the thread cache take about as many instructions as jemalloc's" {
	local n
	for n in 16 1000 14336 100/64; do
		above "malloc $n jemalloc" 20
		awk -v a="$(value "malloc $n pinalloc")" -v b="$(value "malloc $n jemalloc")" \
			'BEGIN { exit !(a <= 1.25 * b) }'
	done
}

@test "a look-up takes fewer instructions than a hit in UCX's cache" {
	above "keys instructions ucx" "$(value "keys instructions pinalloc")"
}

# bats test_tags=thorough
@test "bench/threads, bench/allocators and bench/programs run, and print figures of each allocator" {
	run -0 "$top_srcdir/bench/threads" --quick "$BATS_TEST_TMPDIR/threads.tsv"
	grep -qE $'\t[0-9.]+' "$BATS_TEST_TMPDIR/threads.tsv"
	run -0 "$top_srcdir/bench/allocators" --quick --only grow "$library"
	grep -E '^ +live, MiB +glibc +jemalloc .* pinalloc ' <<< "$output"
	grep -E '^grow( +[0-9.]+){7}$' <<< "$output"
	run -0 "$top_srcdir/bench/programs" --rows 2 --row 1 --scale 0.05 --only lua,redis PINALLOC_HUGEPAGE=off
	grep -E '^processor time, ms +glibc .* PINALLOC_HUGEPAGE=off$' <<< "$output"
	[ "$(grep -cE '^(lua|redis)( +[0-9.]+ [0-9.]+){6}$' <<< "$output")" -eq 6 ]
	[ "$(grep -cE "^mean, to jemalloc's( +[0-9.]+){6}$" <<< "$output")" -eq 3 ]
}

# bats test_tags=thorough
@test "new buffers take fewer registrations and page faults with the library (bench/tensors --here --quick)" {
	run -0 "$top_srcdir/bench/tensors" --here --quick
	echo "$output"
	grep -E '^ +glibc +mallopt +jemalloc .* pinalloc$' <<< "$output"
	awk '$1 " " $2 == "real registrations" { real = $NF < $3 / 1.5 } $1 " " $2 == "page faults" { faults = $NF < $3 / 10 }
		END { exit !real || !faults }' <<< "$output"
}

# columns TITLE: the last three columns of the only line with this title.
columns() {
	awk -v title="$1" '{ line = $0; sub(/^ +/, "", line) }
		index(line, title "  ") == 1 { print $(NF - 2), $(NF - 1), $NF; n++ }
		END { exit n != 1 }' "$BATS_TEST_TMPDIR/watch"
}

# bats test_tags=thorough
@test "unmapping takes its caller as many system calls as without the library (bench/watch --quick)" {
	local what without off on
	run -0 --separate-stderr "$top_srcdir/bench/watch" --quick --here
	echo "$output" | tee "$BATS_TEST_TMPDIR/watch"
	for what in never registered; do
		read -r without off on < <(columns "$what: system calls of the caller")
		[ "$without" -ge 1 ]
		[ "$off" -eq "$without" ]
		[ "$on" -eq "$without" ]
	done
}

@test "what measures refuses options it does not know, before it does anything" {
	local script
	for script in all allocators alternatives demo first-messages job lookup pool programs registration threads watch; do
		run -2 "$top_srcdir/bench/$script" --nonsense
		echo "$output"
		[ "${#lines[@]}" -le 3 ]
		[[ "$output" == *"bench/$script"* ]]
	done
}

@test "each workload of bench/threads does something under the library, in one thread and in three" {
	local workload n rate ns peak
	gcc -std=gnu11 -O2 -Wall -Wextra -Werror -fno-builtin -pthread -o "$BATS_TEST_TMPDIR/threads" \
		"$top_srcdir/bench/threads.c"
	for workload in $(sed -n "s/^workloads='\(.*\)'/\1/p" "$top_srcdir/bench/threads"); do
		for n in 1 3; do
			read -r rate ns peak < <(preloaded "$BATS_TEST_TMPDIR/threads" "$workload" "$n" 0.05)
			echo "$workload in $n threads: $rate millions a second, $ns ns, $peak MiB"
			awk -v x="$rate" -v y="$peak" -v z="$ns" 'BEGIN { exit !(x > 0 && y > 1 && z > 1) }'
		done
	done
	[ "$workload" = brief ]
	run -2 "$BATS_TEST_TMPDIR/threads" nonsense 1 1
}
