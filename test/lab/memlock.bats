#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: if memory cannot be pinned, or there is no device, a program is warned once and gets
# what it would get without the library. An MPI job whose heap is eight times what its user may lock runs as
# without the library, is told once why not all requests are served, and stays below the limit.

load lab

setup_file() {
	[ -z "$everything" ] || build_mpi rounds
	load ../scripts
	guest_variables=(script mapped)
	boot spread spreads small changing
}

# spread NAME [VARIABLE=VALUE…]: runs the job without the library and with it: two ranks of 512 MiB,
# each of which may lock 64 MiB.
spread() {
	local name=$1
	local job=("${@:2}" timeout "$seconds" mpirun.openmpi -n 2 /run/public/rounds.openmpi spread 60 512)

	as_nobody attempt "plain-$name" 67108864 "${job[@]}"
	as_nobody attempt "$name" 67108864 "${under[@]}" PINALLOC_REPORT="/ctl/$name.%r.json" "${job[@]}"
}

spreads() {
	local seconds=$((attempt_seconds - 20))

	cp "$BATS_FILE_TMPDIR/rounds.openmpi" /run/public
	# Of Open MPI 5, mpirun crashes in a directory that its user cannot read.
	cd /tmp
	# UCX pins 38 of the 64 MiB for its own buffers; with little_ucx, a tenth of that.
	spread direct "${no_ucx_cache[@]}"
	spread modest "${no_ucx_cache[@]}" "${little_ucx[@]}"
	spread bounded UCX_RCACHE_MAX_SIZE=16m "${little_ucx[@]}"
	seconds=$((attempt_seconds / 3)) # it may try again for ever
	spread cached "${little_ucx[@]}"
}

in_guest() {
	local kib=1024 mib=1048576 held program=/run/public/rdma-script sizes under

	publish "$programs/rdma-script"
	sizes=("$program" print "${script[sizes]}")
	under=(LD_PRELOAD="$library")
	as_nobody attempt plain-sizes $((64 * kib)) "${sizes[@]}"
	as_nobody attempt sizes $((64 * kib)) "${under[@]}" PINALLOC_REPORT=/ctl/sizes.json "${sizes[@]}"
	shimmed root prlimit --memlock=$((64 * kib)):$((64 * kib)) "${sizes[@]}"
	as_nobody attempt plain-small $((64 * mib)) "$program" "$(small 60)"
	as_nobody attempt small $((64 * mib)) "${under[@]}" PINALLOC_REPORT=/ctl/small.json "$program" "$(small 48)"
	for held in 1 16; do
		as_nobody attempt plain-changing-$held $((64 * mib)) "$program" "$(changing $held)"
		as_nobody attempt changing-$held $((64 * mib)) "${under[@]}" \
			PINALLOC_REPORT=/ctl/changing-$held.json "$program" "$(changing $held)"
		shimmed capped-$held PINALLOC_MAX_PINNED=32M "$program" "$(changing $held)"
	done
	thorough spreads

	chmod 600 /dev/infiniband/uverbs0
	as_nobody attempt plain-forbidden $((64 * mib)) "${sizes[@]}"
	as_nobody attempt forbidden $((64 * mib)) "${under[@]}" "${sizes[@]}"
	rdma link delete rxe0
	attempt plain-absent "${sizes[@]}"
	attempt absent "${under[@]}" "${sizes[@]}"
	attempt plain-devices ibv_devices
	attempt devices "${under[@]}" ibv_devices
}

@test "with a low limit on locked memory, small registrations work and one line says why" {
	unchanged sizes
	grep -qx 'send x+0K:4K y: ok' "$results/sizes.out"
	grep -qx 'send x+4092K:4K y: Bad address' "$results/sizes.out"
	grep -qx 'x=reg a: Cannot allocate memory' "$results/sizes.out"
	[ "$(said sizes | wc -l)" -eq 1 ]
	grep -q 'ulimit -l' "$results/sizes.err"
	holds sizes '.registration.served > 0' '.registration.refused > 0'
}

@test "the limit does not apply to root" {
	ended root
	grep -qx 'send x+16380K:4K y: ok' "$results/root.out"
	[ "$(said root | wc -l)" -eq 0 ]
	holds root '.registration.served > 0' '.registration.refused == 0'
}

@test "in a heap four times the limit, idle memory regions are evicted" {
	ended changing-1
	unchanged changing-1
	[ "$(said changing-1 | wc -l)" -le 1 ]
	holds changing-1 '.memory.mapped_bytes >= 268435456' '.memory.pinned_peak_bytes <= 67108864' \
		'.registration.served > 0' '.registration.evicted > 0'
}

@test "no registration fails that succeeds without the library" {
	ended changing-16
	unchanged changing-16
	[ "$(reported changing-16 '.registration | .served + .passed_through')" -eq 161 ]
}

@test "small buffers in use leave the program at least three quarters of the limit" {
	ended plain-small
	holds small '.registration.served > 0'
}

@test "PINALLOC_MAX_PINNED is obeyed, and the warning names it" {
	local held
	for held in 1 16; do
		holds "capped-$held" '.registration.evicted > 0' '.memory.pinned_peak_bytes <= 33554432'
		[ "$(said "capped-$held" | wc -l)" -eq 1 ]
		grep -q PINALLOC_MAX_PINNED "$results/capped-$held.err"
	done
}

@test "a device without permission costs one line" {
	unchanged forbidden
	[ "$(said forbidden | wc -l)" -eq 1 ]
}

@test "a machine without devices gets none" {
	unchanged absent
	[ "$(said absent | wc -l)" -eq 0 ]
	unchanged devices
	[ "$(said devices | wc -l)" -eq 0 ]
}

# --- an MPI job ---

# within_limits NAME: the job is right with the library and without. Each rank's heap is too large;
# it stays below its share, uses it up, evicts, and prints one line.
within_limits() {
	local rank evicted=0
	right "plain-$1" 60
	right "$1" 60
	for rank in 0 1; do
		holds "$1.$rank" '.memory.mapped_bytes >= 536870912' '.memory.pinned_peak_bytes > 0' \
			'.memory.registered_peak_bytes <= 33554432' '(.registration | .evicted + .refused) > 0'
		((evicted += $(reported "$1.$rank" .registration.evicted))) || :
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
		[ "$(reported "$1.$rank" '.registration | .served > 9 * .passed_through')" = true ]
	done
}

# bats test_tags=thorough
@test "without UCX's registration cache an MPI job runs under a limit on locked memory" {
	within_limits direct
}

# bats test_tags=thorough
@test "if UCX leaves room, nearly all of its requests are served" {
	within_limits modest
	mostly_served modest
}

# bats test_tags=thorough
@test "it runs with a cache that deregisters when memory is short" {
	within_limits bounded
}

# bats test_tags=thorough
@test "with a cache that never deregisters it fails, as without the library" {
	local name
	for name in plain-cached cached; do
		[ "$(< "$results/$name.status")" -ne 0 ]
		# UCX 1.18 may take note of the error too late, and fail an assertion.
		grep -q -e 'UCX *ERROR .*Please set max locked memory' -e 'Assertion .rkey_size ==' \
			"$results/$name.out" "$results/$name.err"
	done
}
