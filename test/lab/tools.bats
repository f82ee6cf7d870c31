#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: existing programs run unchanged, and their requests for heap memory are served.

setup_file() {
	load ../helper
	load lab
	boot listening pair
}

# listening PORT: waits until a server does.
listening() {
	local i
	for ((i = 0; i < 300; i++)); do
		[ -z "$(ss -Htln "sport = :$1")" ] || return 0
		sleep 0.1
	done
}

# pair NAME PORT ADDRESS COMMAND…: runs a server, and a client that gets the address.
pair() {
	local name=$1 port=$2 address=$3
	shift 3
	shimmed "$name-server" "$@" &
	listening "$port"
	shimmed "$name-client" "$@" "$address"
	wait
}

in_guest() {
	local write_bw=(ib_write_bw -d rxe0 -x 1 -F -n 5)

	pair write 18515 127.0.0.1 "${write_bw[@]}" --all
	pair read 18515 127.0.0.1 ib_read_lat -d rxe0 -x 1 -F -n 50 -s 4096
	pair send 18515 127.0.0.1 ib_send_bw -d rxe0 -x 1 -F -n 20 -s 1048576
	head -c 1M /dev/zero > /tmp/buffer
	pair mapped 18515 127.0.0.1 "${write_bw[@]}" -s 65536 --mmap=/tmp/buffer
	pair pingpong 18515 127.0.0.1 ibv_rc_pingpong -d rxe0 -g 1 -s 65536 -n 100 -c
	# On a busy machine it stalled once, among messages of megabytes.
	for _ in 1 2 3; do
		pair libfabric 47592 10.78.0.1 fi_pingpong -p verbs -e msg -I 5 -S all
		grep -qx 124 /ctl/libfabric-{client,server}.status || break
	done
}

setup() {
	load ../helper
	load lab
}

# served NAME: both sides ended normally, and their requests for heap memory were served.
served() {
	local side
	for side in client server; do
		ended "$1-$side"
		[ "$(reported "$1-$side" .registration.served)" -gt 0 ]
		[ "$(reported "$1-$side" .registration.passed_through)" -eq 0 ]
	done
}

@test "ib_write_bw runs, with messages of all sizes" {
	served write
	[ "$(grep -cE '^ [0-9]+ +5 +[0-9.]+ ' "$results/write-client.out")" -eq 23 ]
}

@test "ib_read_lat runs" {
	served read
	grep -qE '^ 4096 +50 +[0-9.]+ ' "$results/read-client.out"
}

@test "ib_send_bw runs" {
	served send
	grep -qE '^ 1048576 +20 +[0-9.]+ ' "$results/send-client.out"
	grep -qE '^ 1048576 +20 +[0-9.]+ ' "$results/send-server.out"
}

@test "ib_write_bw from a mapped file runs, and its buffer goes to libibverbs" {
	local side
	for side in client server; do
		ended "mapped-$side"
		[ "$(reported "mapped-$side" .registration.served)" -eq 0 ]
		[ "$(reported "mapped-$side" \
			'.registration.passed_through_reasons["not heap memory"]')" -eq 1 ]
	done
	grep -qE '^ 65536 +5 +[0-9.]+ ' "$results/mapped-client.out"
}

@test "ibv_rc_pingpong runs, and its data is right" {
	served pingpong
	grep -q '^100 iters in' "$results/pingpong-client.out"
	run ! grep -q 'invalid data' "$results"/pingpong-*.out "$results"/pingpong-*.err
}

@test "fi_pingpong over libfabric's verbs runs, with messages of all sizes" {
	served libfabric
	[ "$(grep -cE '^[0-9.]+[km]? +5 +=5 ' "$results/libfabric-client.out")" -ge 40 ]
}
