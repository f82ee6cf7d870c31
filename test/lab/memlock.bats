#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: if memory cannot be pinned, or there is no device, a program is warned once and gets
# what it would get without the library. (lab/slurm has an MPI job with little locked memory.)
# Found here alone: 12 small buffers in use took half of what the program could lock itself.

load lab

setup_file() {
	load ../scripts
	guest_variables=(script mapped)
	boot small changing
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
	done

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
