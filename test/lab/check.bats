#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: what `pinalloc check` reports about a device, permissions and limits is what a job
# then meets, and `pinalloc run` is all that is needed to have the heap registered.

setup_file() {
	load ../helper
	load lab
	vm_options=("${one_processor[@]}")
	mpicc.openmpi -O2 -I"$top_srcdir" -o "$BATS_FILE_TMPDIR/exchange" "$top_srcdir/test/programs/mpi-exchange.c"
	gcc -O2 -shared -fPIC -I"$top_srcdir" -I"$top_builddir" -o "$BATS_FILE_TMPDIR/fork-needed.so" \
		"$top_srcdir/test/programs/fork-needed.c"
	boot checked
}

# checked NAME BYTES [VARIABLE=VALUE…]: runs the check as an ordinary user under a limit on locked
# memory of BYTES, or SOFT:HARD.
checked() {
	local name=$1 limit=$2
	shift 2
	[[ $limit == *:* ]] || limit=$limit:$limit
	attempt "$name" prlimit --memlock="$limit" setpriv --reuid 65534 --regid 65534 \
		--clear-groups env "$@" /run/public/bin/pinalloc check
}

in_guest() {
	local pinalloc=${programs%/test/programs}/pinalloc mib=1048576 gib=1073741824 command

	chmod 777 /ctl
	mkdir -p -m 755 /run/public/bin /run/public/lib
	cp "$pinalloc" /run/public/bin
	cp "$library" /run/public/lib
	attempt root "$pinalloc" check "$programs/rdma-verbs"
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

	attempt run "$pinalloc" run --report=/ctl/run.json -- "$programs/rdma-verbs" twice
	attempt run-off "$pinalloc" run --report=/ctl/run-off.json --register=off -- \
		"$programs/rdma-verbs" answer
	command=(mpirun.openmpi -np 2 --bind-to none --mca pml ucx --mca btl '^openib,vader,tcp,ofi')
	attempt mpi UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=rxe0:1 UCX_UD_VERBS_ETH_DGID_CHECK=n \
		"${command[@]}" "$pinalloc" run --report=/ctl/mpi.%r.json -- \
		"$BATS_FILE_TMPDIR/exchange" 6

	chmod 600 /dev/infiniband/uverbs0
	checked forbidden unlimited
	chmod 666 /dev/infiniband/uverbs0
	mv /dev/infiniband /dev/elsewhere
	attempt no-file "$pinalloc" check
	mv /dev/elsewhere /dev/infiniband
	rdma link delete rxe0
	attempt absent "$pinalloc" check
}

setup() {
	load ../helper
	load lab
}

# says CASE STATUS WHAT REGEX: there is exactly one such line.
says() {
	cat "$results/$1.out" "$results/$1.err"
	[ "$(grep -cE "^$(printf '%-4s' "$2")  $3: $4\$" "$results/$1.out")" -eq 1 ]
}

@test "with a device and without limits, all checks pass" {
	ended root
	says root ok registration 'rxe0 registered 2 MiB in [0-9]+ us'
	says root ok library '.*'
	says root ok fork '.*'
	says root ok program '.*'
	ended unlimited
	says unlimited ok memlock unlimited
	[ "$(grep -vc '^ok' "$results/unlimited.out")" -eq 0 ]
}

@test "a limit on locked memory is compared with memory and with what is needed" {
	ended all
	says all ok memlock '1\.0 TiB, no less than the memory there is'
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
	ended run
	[ "$(reported run .registration.served)" -gt 0 ]
	ended run-off
	[ "$(reported run-off .registration.served)" -eq 0 ]
}

@test "mpirun pinalloc run -- program reaches every rank" {
	local rank
	ended mpi
	for rank in 0 1; do
		[ "$(reported "mpi.$rank" .rank)" -eq "$rank" ]
		[ "$(reported "mpi.$rank" .registration.served)" -gt 0 ]
	done
}
