#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: if memory cannot be pinned, or there is no device, a program is warned once and gets
# what it would get without the library.

setup_file() {
	load ../helper
	load lab
	vm_options=("${one_processor[@]}")
	boot
}

in_guest() {
	local kib=1024 mib=1048576 held memlock under

	chmod 777 /ctl
	mkdir -m 755 /run/public
	cp "$library" "$programs/rdma-memlock" /run/public
	library=/run/public/libpinalloc.so
	memlock=/run/public/rdma-memlock
	under=(LD_PRELOAD="$library")
	known plain-sizes || as_nobody plain-sizes $((64 * kib)) "$memlock" sizes
	as_nobody sizes $((64 * kib)) "${under[@]}" PINALLOC_REPORT=/ctl/sizes.json "$memlock" sizes
	shimmed root prlimit --memlock=$((64 * kib)):$((64 * kib)) "$memlock" sizes
	known plain-small || as_nobody plain-small $((64 * mib)) "$memlock" small
	as_nobody small $((64 * mib)) "${under[@]}" PINALLOC_REPORT=/ctl/small.json "$memlock" small
	for held in 1 16; do
		known plain-churn-$held || as_nobody plain-churn-$held $((64 * mib)) "$memlock" churn $held
		as_nobody churn-$held $((64 * mib)) "${under[@]}" \
			PINALLOC_REPORT=/ctl/churn-$held.json "$memlock" churn $held
		shimmed capped-$held PINALLOC_MAX_PINNED=32M "$memlock" churn $held
	done

	chmod 600 /dev/infiniband/uverbs0
	known plain-forbidden || as_nobody plain-forbidden $((64 * mib)) "$memlock" sizes
	as_nobody forbidden $((64 * mib)) "${under[@]}" "$memlock" sizes
	rdma link delete rxe0
	known plain-absent || attempt plain-absent "$memlock" sizes
	attempt absent "${under[@]}" "$memlock" sizes
	known plain-devices || attempt plain-devices ibv_devices
	attempt devices "${under[@]}" ibv_devices
}

setup() {
	load ../helper
	load lab
}

# said CASE: the library's lines.
said() {
	grep -c '^pinalloc' "$results/$1.err"
}

# unchanged CASE: the program ended, and printed, as without the library.
unchanged() {
	ended "$1" "$(< "$results/plain-$1.status")"
	diff "$results/plain-$1.out" "$results/$1.out"
	diff "$results/plain-$1.err" <(grep -v '^pinalloc' "$results/$1.err")
}

@test "with a low limit on locked memory, small registrations work and one line says why" {
	unchanged sizes
	grep -qx '4 KiB: data right' "$results/sizes.out"
	grep -qx '4096 KiB: Cannot allocate memory' "$results/sizes.out"
	[ "$(said sizes)" -eq 1 ]
	grep -q 'ulimit -l' "$results/sizes.err"
	[ "$(reported sizes .registration.served)" -gt 0 ]
	[ "$(reported sizes .registration.refused)" -gt 0 ]
}

@test "the limit does not apply to root" {
	ended root
	grep -qx '16384 KiB: data right' "$results/root.out"
	[ "$(said root)" -eq 0 ]
	[ "$(reported root .registration.served)" -gt 0 ]
	[ "$(reported root .registration.refused)" -eq 0 ]
}

@test "in a heap four times the limit, idle memory regions are evicted" {
	unchanged churn-1
	grep -qx 'refused 0 wrong 0' "$results/churn-1.out"
	[ "$(said churn-1)" -le 1 ]
	[ "$(reported churn-1 .memory.mapped_bytes)" -ge 268435456 ]
	[ "$(reported churn-1 .memory.pinned_peak_bytes)" -le 67108864 ]
	[ "$(reported churn-1 .registration.served)" -gt 0 ]
	[ "$(reported churn-1 .registration.evicted)" -gt 0 ]
}

@test "no registration fails that succeeds without the library" {
	unchanged churn-16
	grep -qx 'refused 0 wrong 0' "$results/churn-16.out"
	[ "$(reported churn-16 '.registration | .served + .passed_through')" -eq 161 ]
}

@test "small buffers in use leave the program at least three quarters of the limit" {
	ended plain-small
	ended small
	[ "$(value plain-small own)" -ge 60 ]
	[ "$(value small own)" -ge 48 ]
	[ "$(reported small .registration.served)" -gt 0 ]
}

@test "PINALLOC_MAX_PINNED is obeyed, and the warning names it" {
	local held
	for held in 1 16; do
		ended "capped-$held"
		grep -qx 'refused 0 wrong 0' "$results/capped-$held.out"
		[ "$(reported "capped-$held" .registration.evicted)" -gt 0 ]
		[ "$(reported "capped-$held" .memory.pinned_peak_bytes)" -le 33554432 ]
		[ "$(said "capped-$held")" -eq 1 ]
		grep -q PINALLOC_MAX_PINNED "$results/capped-$held.err"
	done
}

@test "a device without permission costs one line" {
	unchanged forbidden
	[ "$(said forbidden)" -eq 1 ]
}

@test "a machine without devices gets none" {
	unchanged absent
	[ "$(said absent)" -eq 0 ]
	unchanged devices
	[ "$(said devices)" -eq 0 ]
}
