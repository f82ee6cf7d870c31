#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: for a program that uses verbs nothing changes except speed, whatever adapter it has.
# rdma-core's own providers run over a kernel module (test/lab/providers) that pins memory, but sends
# nothing, and says what an adapter would reach with a key.
# Only here: the code of each adapter.

kinds=(mlx5 efa irdma)
more_kinds=(mlx4 bnxt_re hns erdma qedr cxgb4 siw ocrdma vmw_pvrdma mthca hfi1 qib mana)

load lab

setup_file() {
	module=$("$top_srcdir/test/lab/providers/build")
	gcc -std=gnu11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -I"$top_srcdir" -pthread \
		-o "$BATS_FILE_TMPDIR/providers" "$top_srcdir/test/programs/rdma-providers.c" -libverbs -lmlx5 -lefa
	load ../scripts
	guest_variables=(module kinds more_kinds script)
	vm_options+=(--rxe '')
	boot in_settings regions
}

in_guest() {
	local kind program=$programs/rdma-script programs=$BATS_FILE_TMPDIR

	insmod "$module"
	for kind in "${kinds[@]}"; do
		in_settings "$kind"
	done
	for kind in "${more_kinds[@]}"; do
		thorough in_settings "$kind"
	done
	attempt unplug-without "$program" print "${script[unplug]}"
	shimmed unplug "$program" print "${script[unplug]}"
	shimmed plugged "$program" "${script[plugged]}"
	shimmed closing "$program" "${script[closing]}"
}

# in_settings KIND: the fifth, lazy, is compared with the first.
in_settings() {
	local setting text
	for setting in plain dlsym fork direct; do
		[[ $setting != direct || $1 == mlx5 ]] || continue
		attempt "$1-$setting-without" "$programs/providers" "$1" "$setting"
		shimmed "$1-$setting" "$programs/providers" "$1" "$setting"
		text=$(regions "$1" "$setting")
		attempt "$1-$setting-regions-without" "$program" print "$text"
		shimmed "$1-$setting-regions" "$program" print "$text"
	done
	shimmed "$1-lazy" PINALLOC_REGISTER=lazy "$programs/providers" "$1" plain
	shimmed "$1-lazy-regions" PINALLOC_REGISTER=lazy "$program" print "$(regions "$1" plain)"
}

# same KIND SETTING [SETTING]: the answers are those without the library in the latter setting.
same() {
	local part
	for part in '' -regions; do
		ended "$1-${3:-$2}$part-without"
		ended "$1-$2$part"
		diff "$results/$1-${3:-$2}$part-without.out" "$results/$1-$2$part.out"
		diff "$results/$1-${3:-$2}$part-without.err" "$results/$1-$2$part.err"
	done
	[ "$(wc -l < "$results/$1-$2-regions.out")" -ge 100 ]
	[ "$(grep -c ': ok$' "$results/$1-$2-regions.out")" -ge 60 ]
	[ "$(reported "$1-$2-regions" .registration.served)" -ge 100 ]
}

# all_same KIND…
all_same() {
	local kind setting
	for kind; do
		for setting in plain dlsym fork; do
			same "$kind" "$setting"
		done
		same "$kind" lazy plain
	done
}

@test "the providers of mlx5, efa and irdma answer as without the library, and keys reach the right pages" {
	all_same "${kinds[@]}"
	same mlx5 direct
}

# bats test_tags=thorough
@test "so do those of thirteen other adapters" {
	all_same "${more_kinds[@]}"
}

@test "requests to an adapter that is unplugged fail as without the library, and are served when it is back" {
	ended unplug-without
	ended unplug
	grep -qx 'reg a: Input/output error' "$results/unplug.out"
	[ "$(grep -c ': 0 wrong$' "$results/unplug.out")" -eq 4 ]
	diff "$results/unplug-without.out" "$results/unplug.out"
	ended plugged
}

@test "contexts can be closed by a function found by dlsym while their heap is registered" {
	ended closing
	[ ! -s "$results/closing.err" ]
	holds closing '.registration.mr_created > 20' '.memory.pinned_bytes == 0'
}
