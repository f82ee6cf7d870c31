#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: pinalloc-acceptance fails, and says why, where it cannot try anything: without an adapter,
# a compiler or an MPI library, and where no message went through an adapter. (With one it is tried in
# the lab.) The MPI library here is a stand-in.
load helper

setup() {
	cd "$BATS_TEST_TMPDIR"
	mkdir -p bin/.libs share/pinalloc
	cp "$top_builddir"/{pinalloc,test/acceptance/pinalloc-acceptance} "$top_srcdir/preload/pinalloc-bugreport" bin
	cp "$top_srcdir"/test/acceptance/*.c "$top_srcdir"/test/programs/{calls.h,mpi-stale.c} share/pinalloc
	ln -s "$library" bin/.libs
	printf '#!/bin/sh\nfor RANK in 0 1; do PMI_RANK=$RANK PMI_SIZE=2 "$@" || exit; done\n' > twice
	cat > mpicc <<- 'END'
		#!/bin/bash
		while [ "${1:--o}" != -o ]; do shift; done
		[ $# -ge 2 ] || exit 0
		printf '#!/bin/bash\n[ "$1" = list ] || printf "wrong 0\\nnodes 1\\n"\n' > "$2"
		chmod +x "$2"
	END
	chmod +x twice mpicc
	export MPICC=$PWD/mpicc
}

# accepted [NAME=VALUE…]: a run of it, in $output, which may not end well.
accepted() {
	run env "$@" bin/pinalloc-acceptance -l "$PWD/twice" -o file
	echo "$output"
	[ "$status" -eq 1 ]
}

# of_step TITLE TEXT: how that step's line goes on.
of_step() {
	grep -E "^$1 +$2\$" <<< "$output"
}

@test "without an adapter each step says so, and the last line names the cure" {
	[ ! -e /sys/class/infiniband ] || [ -z "$(ls /sys/class/infiniband)" ]
	accepted
	of_step 'registrations, with the library' "FAILED: no adapter on $(uname -n)"
	of_step 'ping-pong, kept buffers, without the library' 'FAILED: no adapter where the ranks start'
	of_step 'pages replaced: nothing is corrupt' 'FAILED: no adapter where the ranks start'
	[ "$(grep -c ' ok$' <<< "$output")" -eq 3 ]
	grep -x '3 of [12][0-9] steps ended well' <<< "$output"
	grep -E '^no adapter on .*: run this where /sys/class/infiniband has one, .* salloc -N 2 ' <<< "$output"
	grep -E '^no adapter on .*: run this where ' file
	[ -z "$(compgen -G 'pinalloc-acceptance.*')" ]
}

@test "a compiler that is missing is named, and fails what it was for" {
	accepted CC=/nowhere/cc MPICC=/nowhere/mpicc
	of_step 'compile adapter.c' 'FAILED: there is no /nowhere/cc'
	of_step 'fork, with the library' 'FAILED: there is no /nowhere/cc'
	of_step 'compile mpi-stale.c' 'FAILED: there is no /nowhere/mpicc' ||
		of_step 'compile pingpong.c' 'FAILED: there is no /nowhere/mpicc'
	of_step 'ping-pong, fresh buffers, with the library' 'FAILED: there is no /nowhere/mpicc'
	grep -x '0 of [12][0-9] steps ended well' <<< "$output"
	grep -x 'there is no /nowhere/mpicc: load the module of an MPI library, or name its compiler by MPICC' <<< "$output"
}

@test "a ping-pong whose messages go through no adapter is a failure" {
	mkdir -p class/infiniband/none0
	accepted unshare -rm bash -c 'mount --bind class /sys/class && exec "$@"' covered
	of_step 'registrations, without the library' 'FAILED \(1\)'
	grep -x '    no RDMA device: .*' <<< "$output"
	of_step 'ping-pong, kept buffers, with the library' 'FAILED \(70\)'
	grep -x '    no message went through an adapter: no registration was answered' <<< "$output"
	of_step 'ping-pong, kept buffers, without the library' 'FAILED: no message went through an adapter'
	grep -E '^no message went through an adapter: give the ranks two nodes, ' <<< "$output"
}

# launched [NAME=VALUE…]: what the ranks are started with.
launched() {
	sed -n '/^usual_launcher() {/,/^}/p' bin/pinalloc-acceptance > usual
	env -u SLURM_JOB_ID PATH="$PWD:$PATH" "$@" bash -c '. ./usual && usual_launcher'
}

@test "two ranks start on two nodes where the job has two" {
	[ "=$(launched SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=1)" = '=srun -n 2' ]
	[ "=$(launched SLURM_JOB_ID=1 SLURM_JOB_NUM_NODES=4)" = '=srun -N 2 -n 2' ]
	printf '#!/bin/sh\necho "$VERSION"\n' > mpirun
	chmod +x mpirun
	[[ "$(launched VERSION='mpirun (Open MPI) 4.1.4')" == 'mpirun -n 2 --map-by '* ]]
	[ "=$(launched VERSION='HYDRA build details:')" = '=mpirun -n 2 -ppn 1' ]
	[ "=$(launched VERSION=other)" = '=mpirun -n 2' ]
}
