#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: the library exports the symbols in test/symbols.expected, with those versions, and
# nothing else. Adding one is a decision, not an accident.
load helper

# exported LIBRARY: kind, name and version of each symbol it exports.
exported() {
	nm -D --defined-only --with-symbol-versions "$1" | awk '{ print $(NF - 1), $NF }' | sort
}

@test "the exported symbols are those listed" {
	diff "$top_srcdir/test/symbols.expected" <(exported "$library")
}

@test "the Debian package lists the same symbols" {
	diff <(sed -n 's/^ \([^@]*\)@.*/\1/p' "$top_srcdir/preload/packaging/debian/libpinalloc0.symbols" | sort -u) \
		<(awk '{ sub(/@.*/, "", $2); print $2 }' "$top_srcdir/test/symbols.expected" | sort -u)
}

@test "verbs are exported with their versions in libibverbs" {
	local libibverbs
	libibverbs=$(pkg-config --variable=libdir libibverbs)/libibverbs.so
	# Of rdma-core 61 and later.
	local later='@@IBVERBS_1.1[578]'
	run comm -23 <(exported "$library" | grep 'T ibv_' | grep -vE "$later") <(exported "$libibverbs")
	echo "not in libibverbs: $output"
	[ -z "$output" ]
}
