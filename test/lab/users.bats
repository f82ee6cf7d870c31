#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: existing programs and libraries that use verbs, beside MPI, run unchanged, their data is
# right, and what they request of the heap is served.

load lab

setup_file() {
	vm_options=(--smp 2)
	g++ -O2 -o "$BATS_FILE_TMPDIR/gloo-sums" "$top_srcdir/test/programs/gloo-sums.cc" -lgloo
	oshcc -O2 -o "$BATS_FILE_TMPDIR/shmem-ring" "$top_srcdir/test/programs/shmem-ring.c"
	boot listening pair tools sockets storage sums symmetric
}

# listening PORT: waits until a server does, by sockets or by rdma_cm.
listening() {
	local i
	for ((i = 0; i < 300; i++)); do
		[ -z "$(ss -Htln "sport = :$1")" ] || return 0
		! rdma resource show cm_id | grep -q "LISTEN.*:$1" || return 0
		sleep 0.1
	done
}

# pair NAME PORT SERVER CLIENT: two texts for a shell. Words before the command are settings.
pair() {
	# shellcheck disable=SC2086 # as many words as there are
	shimmed "$1-server" $3 &
	listening "$2"
	# shellcheck disable=SC2086
	shimmed "$1-client" $4
	wait
}

# With perftest, libibverbs' and libfabric's own.
tools() {
	local write_bw='ib_write_bw -d rxe0 -x 1 -F -n 5' command
	local -A commands=([write]="$write_bw --all" [read]='ib_read_lat -d rxe0 -x 1 -F -n 50 -s 4096'
		[send]='ib_send_bw -d rxe0 -x 1 -F -n 20 -s 1048576'
		[mapped]="$write_bw -s 65536 --mmap=/tmp/buffer"
		[pingpong]='ibv_rc_pingpong -d rxe0 -g 1 -s 65536 -n 100 -c')

	head -c 1M /dev/zero > /tmp/buffer
	for command in "${!commands[@]}"; do
		pair "$command" 18515 "${commands[$command]}" "${commands[$command]} 127.0.0.1"
	done
	# On a busy machine it stalled once, among messages of megabytes.
	command='fi_pingpong -p verbs -e msg -I 5 -S all'
	for _ in 1 2 3; do
		pair libfabric 47592 "$command" "$command 10.78.0.1"
		grep -qx 124 /ctl/libfabric-{client,server}.status || break
		echo "libfabric: its time was up" >> /ctl/repeated
	done
}

# sockets NAME PRELOAD: ordinary sockets, which librspreload turns into rsockets.
sockets() {
	local stream="LD_PRELOAD=$2 rstream -T s -T v -S 65536 -C 10 -I 10"

	pair "$1" 7471 "$stream" "$stream -s 10.78.0.1"
}

storage() {
	local options='--ioengine=rdma --thread --bs=64k --size=4m --port=7000 --name=job'

	pair fio 7000 "fio $options --rw=read" \
		"fio $options --rw=write --hostname=10.78.0.1 --verb=write --iodepth=4"
}

sums() {
	mkdir /tmp/meeting
	shimmed gloo-server "$BATS_FILE_TMPDIR/gloo-sums" 0 /tmp/meeting &
	shimmed gloo-client "$BATS_FILE_TMPDIR/gloo-sums" 1 /tmp/meeting
	wait
}

# With another osc, Open MPI 4.1 unloads a component that is called when memory is unmapped, and
# crashes when its threads end, without the library too.
symmetric() {
	job shmem OMPI_MCA_spml=ucx OMPI_MCA_osc=ucx oshrun -n 2 "$BATS_FILE_TMPDIR/shmem-ring"
}

in_guest() {
	local rsockets perftest

	tools
	pair rping 7174 'rping -s -a 10.78.0.1 -V -C 20 -S 32768' \
		'rping -c -a 10.78.0.1 -V -C 20 -S 32768'
	rsockets=$(echo /usr/lib/*/rsocket/librspreload.so)
	sockets front "$library:$rsockets"
	sockets behind "$rsockets:$library"
	pair qperf 19765 qperf 'qperf 10.78.0.1 -cm 1 -t 1 -m 65536 rc_rdma_write_bw quit'
	storage
	perftest='UCX_ALLOC_PRIO=heap ucx_perftest -s 1048576 -n 20'
	# One that was built with MPI takes itself for a rank where there is no terminal.
	! ucx_perftest -h | grep -q '^ *-P ' || perftest+=' -P 0'
	perftest+=' -t'
	pair put 13337 "$perftest ucp_put_bw" "$perftest ucp_put_bw 10.78.0.1"
	pair get 13337 "$perftest ucp_get" "$perftest ucp_get 10.78.0.1"
	sums
	symmetric
}

# served NAME: both sides ended normally, and requests for heap memory were served, all of them.
served() {
	local side
	for side in client server; do
		holds "$1-$side" '.registration.served > 0'
		[ "$(of_the_heap "$results/$1-$side.json")" = '{}' ]
	done
}

# prints NAME COUNT REGEX: both sides were served, and the client printed at least so many such lines.
prints() {
	served "$1"
	[ "$(grep -cE "$3" "$results/$1-client.out")" -ge "$2" ]
}

@test "rping validates what it reads and writes" {
	served rping
}

@test "rsockets verify what ordinary sockets send, with librspreload before the library" {
	prints front 1 '^custom '
}

@test "and with librspreload behind it" {
	prints behind 1 '^custom '
}

@test "qperf runs" {
	ended qperf-client
	grep -qE 'bw *= *[0-9.]+ [KMG]B/sec' "$results/qperf-client.out"
	[ "$(reported qperf-client .registration.served)" -gt 0 ]
}

@test "fio writes over verbs" {
	prints fio 1 'issued rwts: total=0,64,0,0'
}

@test "memory that UCX allocates and maps by ucp_mem_map() is written and read" {
	prints put 1 '^Final: +20 '
	prints get 1 '^Final: +20 '
}

@test "Gloo's sums are right, of vectors that are allocated anew" {
	local side
	served gloo
	for side in client server; do
		grep -qx 'wrong 0' "$results/gloo-$side.out"
	done
}

@test "OpenSHMEM: what crosses symmetric and private memory is right" {
	local rank
	ended shmem
	[ "$(grep -cx 'wrong 0' "$results/shmem.out")" -eq 2 ]
	for rank in 0 1; do
		[ "$(figure "$results/shmem.$rank.json" .registration.served)" -gt 0 ]
	done
}

@test "ib_write_bw, with messages of all sizes, ib_read_lat and ib_send_bw run" {
	prints write 23 '^ [0-9]+ +5 +[0-9.]+ '
	prints read 1 '^ 4096 +50 +[0-9.]+ '
	prints send 1 '^ 1048576 +20 +[0-9.]+ '
	grep -qE '^ 1048576 +20 +[0-9.]+ ' "$results/send-server.out"
}

@test "ib_write_bw from a mapped file runs, and its buffer goes to libibverbs" {
	local side
	for side in client server; do
		holds "mapped-$side" '.registration.served == 0' \
			'.registration.passed_through_reasons["not heap memory"] == 1'
	done
	grep -qE '^ 65536 +5 +[0-9.]+ ' "$results/mapped-client.out"
}

@test "ibv_rc_pingpong runs, and its data is right" {
	prints pingpong 1 '^100 iters in'
	run ! grep -q 'invalid data' "$results"/pingpong-*.out "$results"/pingpong-*.err
}

@test "fi_pingpong over libfabric's verbs runs, with messages of all sizes" {
	prints libfabric 40 '^[0-9.]+[km]? +5 +=5 '
}
