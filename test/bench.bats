#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: malloc costs what jemalloc's costs, a look-up less than a hit in UCX's cache, counted in
# instructions.
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
@test "new buffers take fewer registrations and page faults with the library (bench/tensors --here --quick)" {
	run -0 "$top_srcdir/bench/tensors" --here --quick
	echo "$output"
	grep -E '^ +glibc +mallopt +jemalloc .* pinalloc$' <<< "$output"
	awk '$1 " " $2 == "real registrations" { real = $NF < $3 / 1.5 } $1 " " $2 == "page faults" { faults = $NF < $3 / 10 }
		END { exit !real || !faults }' <<< "$output"
}
