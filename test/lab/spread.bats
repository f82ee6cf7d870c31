#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: an MPI job whose heap is eight times what its user may lock runs as without the
# library, is told once why not all requests are served, and stays below the limit.

setup_file() {
	load ../helper
	load lab
	mpicc.openmpi -O2 -o "$BATS_FILE_TMPDIR/mpi-spread" "$top_srcdir/test/programs/mpi-spread.c"
	vm_options=("${one_processor[@]}")
	boot spread
}

# spread NAME [VARIABLE=VALUE…]: runs the job without the library and with it: two ranks of 512 MiB,
# each of which may lock 64 MiB.
spread() {
	local name=$1
	local job=(HOME=/tmp UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=rxe0:1
		UCX_UD_VERBS_ETH_DGID_CHECK=n "${@:2}" timeout "$seconds" mpirun.openmpi -np 2
		--oversubscribe --bind-to none --mca pml ucx --mca btl ^openib,vader,tcp,ofi /run/public/mpi-spread 60 512)

	as_nobody "plain-$name" 67108864 "${job[@]}"
	as_nobody "$name" 67108864 LD_PRELOAD=/run/public/libpinalloc.so \
		PINALLOC_REPORT="/ctl/$name.%r.json" "${job[@]}"
}

in_guest() {
	local seconds=$((attempt_seconds - 20))
	# UCX pins 38 of the 64 MiB for its own buffers; with these settings, a tenth of that.
	local modest=(UCX_RC_VERBS_SEG_SIZE=2k UCX_RC_VERBS_TX_BUFS_GROW=128
		UCX_RC_VERBS_RX_QUEUE_LEN=512 UCX_UD_VERBS_TX_BUFS_GROW=128
		UCX_UD_VERBS_RX_QUEUE_LEN=512)

	# Of Open MPI 5, mpirun crashes in a directory that its user cannot read.
	cd /tmp
	chmod 777 /ctl
	mkdir -m 755 /run/public
	cp "$library" "$BATS_FILE_TMPDIR/mpi-spread" /run/public
	spread direct "${no_ucx_cache[@]}"
	spread modest "${no_ucx_cache[@]}" "${modest[@]}"
	spread bounded UCX_RCACHE_MAX_SIZE=16m "${modest[@]}"
	seconds=$((attempt_seconds / 3)) # it may try again for ever
	spread cached "${modest[@]}"
}

setup() {
	load ../helper
	load lab
}

# right NAME: the job ran, and every word arrived.
right() {
	ended "$1"
	grep -qx 'rounds 60 wrong 0' "$results/$1.out"
}

# rank_reported NAME RANK PATH
rank_reported() {
	figure "$results/$1.$2.json" "$3"
}

# within_limits NAME: the job is right with the library and without. Each rank's heap is too large;
# it stays below its share, uses it up, evicts, and prints one line.
within_limits() {
	local rank evicted=0
	right "plain-$1"
	right "$1"
	for rank in 0 1; do
		[ "$(rank_reported "$1" $rank .memory.mapped_bytes)" -ge 536870912 ]
		[ "$(rank_reported "$1" $rank .memory.pinned_peak_bytes)" -gt 0 ]
		[ "$(rank_reported "$1" $rank .memory.registered_peak_bytes)" -le 33554432 ]
		[ "$(rank_reported "$1" $rank '.registration | .evicted + .refused')" -gt 0 ]
		((evicted += $(rank_reported "$1" $rank .registration.evicted))) || :
	done
	[ "$evicted" -gt 0 ]
	grep '^pinalloc\[' "$results/$1.err" | cut -d: -f1 > "$BATS_TEST_TMPDIR/said"
	[ "$(wc -l < "$BATS_TEST_TMPDIR/said")" -eq 2 ]
	[ "$(sort -u "$BATS_TEST_TMPDIR/said" | wc -l)" -eq 2 ]
	[ "$(grep -c 'ulimit -l' "$results/$1.err")" -eq 2 ]
}

# mostly_served NAME: requests were served as far as memory regions fit.
mostly_served() {
	local rank
	for rank in 0 1; do
		[ "$(rank_reported "$1" $rank '.registration | .served > 9 * .passed_through')" = true ]
	done
}

@test "without UCX's registration cache an MPI job runs under a limit on locked memory" {
	within_limits direct
}

@test "if UCX leaves room, nearly all of its requests are served" {
	within_limits modest
	mostly_served modest
}

@test "it runs with a cache that deregisters when memory is short" {
	within_limits bounded
}

@test "with a cache that never deregisters it fails, as without the library" {
	local name
	for name in plain-cached cached; do
		[ "$(< "$results/$name.status")" -ne 0 ]
		# UCX 1.18 may take note of the error too late, and fail an assertion.
		grep -q -e 'UCX *ERROR .*Please set max locked memory' -e 'Assertion .rkey_size ==' \
			"$results/$name.out" "$results/$name.err"
	done
}
