#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: what `pinalloc check` reports about a device, permissions and limits is what a job
# then meets, and `pinalloc run` is all that is needed to have the heap registered.
# Only here: a device, its permissions, and a provider or a driver that is missing.

load lab

setup_file() {
	build_shared fork-needed.so fork-needed
	load ../scripts
	guest_variables=(script)
	boot checked
}

# checked NAME BYTES [VARIABLE=VALUE…]: runs the check as an ordinary user under a limit on locked
# memory of BYTES, or SOFT:HARD.
checked() {
	as_nobody attempt "$@" /run/public/bin/pinalloc check
}

in_guest() {
	local pinalloc=${programs%/test/programs}/pinalloc mib=1048576 gib=1073741824

	publish
	attempt root "$pinalloc" check "$programs/rdma-script"
	checked unlimited unlimited
	checked all $((1024 * gib))
	checked half $((2 * gib))
	checked soft $((64 * 1024)):$((4 * gib))
	checked little $((8 * mib))
	checked tiny $((64 * 1024))
	attempt no-provider sh -c 'mount -t tmpfs none /etc/libibverbs.d && "$0" check' \
		"$pinalloc"
	umount /etc/libibverbs.d

	attempt no-copies LD_PRELOAD="$BATS_FILE_TMPDIR/fork-needed.so" "$pinalloc" check
	attempt copies "$pinalloc" check

	attempt run "$pinalloc" run --report=/ctl/run.json -- \
		"$programs/rdma-script" "${script[twice]}"
	attempt run-off "$pinalloc" run --report=/ctl/run-off.json --register=off -- \
		"$programs/rdma-script" "${script[answer]}"

	chmod 600 /dev/infiniband/uverbs0
	checked forbidden unlimited
	chmod 666 /dev/infiniband/uverbs0
	mv /dev/infiniband /dev/elsewhere
	attempt no-file "$pinalloc" check
	mv /dev/elsewhere /dev/infiniband
	rdma link delete rxe0
	attempt absent "$pinalloc" check
}

@test "with a device and without limits, all checks pass" {
	ended root
	says root ok registration 'rxe0 registered 2 MiB in [0-9]+ us'
	says root ok library '.*'
	says root ok fork '.*'
	says root ok program '.*'
	ended unlimited
	says unlimited ok memlock 'no less than the memory there is'
	[ "$(grep -vc '^ok' "$results/unlimited.out")" -eq 0 ]
}

@test "a limit on locked memory is compared with memory and with what is needed" {
	ended all
	says all ok memlock 'no less than the memory there is'
	ended half 1
	says half warn memlock 'a process may pin 2\.0 GiB of .* half of what the program leaves; set memlock to unlimited: .*'
	says half ok registration '.*'
	ended little 2
	says little fail memlock '.* less than an MPI library needs for itself; .*'
	says little ok registration '.*'
	ended tiny 2
	says tiny fail registration 'rxe0 does not register 2 MiB: Cannot allocate memory; raise ulimit -l .*'
	ended soft 2
	says soft fail memlock '.*; ulimit -l .* where the ranks are started'
}

@test "a device that cannot be opened is reported with the cure" {
	ended forbidden 2
	says forbidden fail device 'rxe0 cannot be opened; .*udev.*'
	ended no-file 2
	says no-file fail device 'the kernel has an RDMA device, but libibverbs cannot use it; .*into the container.*'
}

@test "a device without provider and no device are reported with the cure" {
	ended no-provider 2
	says no-provider fail device 'the kernel has an RDMA device, but libibverbs cannot use it; .*ibverbs-providers.*'
	ended absent 2
	says absent fail device 'there is no RDMA device here; .*'
}

@test "a kernel that does not copy pinned pages at fork is reported, with what follows" {
	ended no-copies 1
	says no-copies warn fork '.*nothing is registered ahead; a kernel from 5\.12 on and rdma-core from 35 on; .*IBV_FORK_SAFE.*'
	ended copies
	says copies ok fork '.*'
}

@test "registrations of a program under pinalloc run are served" {
	holds run '.registration.served > 0'
	holds run-off '.registration.served == 0'
}
