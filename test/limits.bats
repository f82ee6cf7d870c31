#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: if memory or address space is limited, or another malloc comes first, one line says so
# and the program continues.

setup() {
	load helper
}

# limited OPTION VALUE COMMAND…: runs a command under the library and a ulimit.
limited() {
	ulimit "$1" "$2" || return
	shift 2
	preloaded "$@"
}

one_line() {
	echo "said: $stderr"
	[ "${#stderr_lines[@]}" -eq 1 ]
	[[ "$stderr" =~ ^pinalloc\[[0-9]+\]:\ $1$ ]]
}

@test "with little address space the heap is smaller, and no process says so that needs no more" {
	local kib
	for kib in 500000 100000 60000; do
		run -0 --separate-stderr limited -v $kib bash -c 'for i in {1..1000}; do
			words+=("word $i"); done; echo ${#words[@]}'
		[ "$output" = 1000 ]
		[ -z "$stderr" ]
	done
	run -0 --separate-stderr limited -v 500000 bash -c 'exec "$@"' - env PINALLOC_LOG=info "$programs/grow" 100
	one_line 'the heap can grow to [0-9.]+ MiB at most: .*ulimit -v.*'
	run -1 --separate-stderr limited -v 500000 bash -c '"$@"; ls > /dev/null; exec "$@"' - "$programs/grow" 600
	[ "${#stderr_lines[@]}" -eq 2 ]
	[[ "${stderr_lines[1]}" =~ ^pinalloc\[[0-9]+\]:\ the\ heap\ can\ grow\ to\ .*ulimit\ -v ]]
	# Nor a heap that can be larger than memory.
	run -0 --separate-stderr limited -v $(($(awk '/^MemTotal/ { print $2 }' /proc/meminfo) * 2)) env PINALLOC_LOG=info "$programs/grow" 1
	[ -z "$stderr" ]
}

# slowed EVENTS MIB [FILE TEXT…] [NAME=VALUE…]: a heap of MIB where memory.high is 64 MiB.
slowed() {
	run -0 --separate-stderr grouped memory.high 67108864 memory.events "low 0\nhigh $1\nmax 0\noom 0\noom_kill 0\n" \
		"${@:3}" env LD_PRELOAD="$library" PINALLOC_REPORT="$report" "$programs/grow" "$2"
}

@test "above memory.high of its control group, of which the heap has much, one line says so, and a report has it" {
	local line='the control group was above its memory.high, 64\.0 MiB, and the heap gives nothing back: .*; ask for more memory, .* or raise /sys/fs/cgroup/job/step/memory\.high'
	slowed 7 60
	one_line "$line"
	[ "$(jq -c '.memory | [.cgroup_limit_bytes, .cgroup_high_bytes, .cgroup_high_events, .cgroup_oom_kills]' "$report")" = \
		'[67108864,67108864,7,0]' ]
	slowed 7 40 env OMPI_COMM_WORLD_LOCAL_SIZE=2
	one_line "$line"
	slowed 7 40
	[ -z "$stderr" ]
	slowed 0 100
	[ -z "$stderr" ]
	slowed 7 100 memory.max 33554432
	[ -z "$stderr" ]
	[ "$(jq -c '.memory | [.cgroup_limit_bytes, .cgroup_high_bytes]' "$report")" = '[33554432,null]' ]
}

@test "with too little address space to start, one line says so and malloc returns NULL" {
	run -1 --separate-stderr limited -v 14000 "$programs/grow" 1
	one_line 'cannot reserve address space for the heap: raise ulimit -v'
	run --separate-stderr limited -v 14000 ls /
	[ "$status" -lt 128 ]
	[[ "${stderr_lines[0]}" == *"raise ulimit -v" ]]
	[[ "${stderr_lines[1]}" != *pinalloc* ]]
	run -1 --separate-stderr limited -d 4400 "$programs/grow" 1
	one_line 'malloc has no memory at the start: raise ulimit -v and ulimit -d'
}

@test "on a kernel with larger pages than jemalloc's, one line says so and malloc returns NULL" {
	cd "$BATS_TEST_TMPDIR"
	gcc -shared -fPIC -x c -o pages.so - <<-'END'
		int getpagesize(void) { return 65536; }
	END
	run -1 --separate-stderr env LD_PRELOAD="$PWD/pages.so:$library" "$programs/grow" 1
	one_line 'the pages of this kernel have 65536 bytes: build pinalloc with a jemalloc configured for those, or start a kernel with pages of 4096'
}

# exhausted OPTION VALUE N…: all memory but N MiB is in use when threads begin.
exhausted() {
	local n
	for n in "${@:3}"; do
		run -0 --separate-stderr limited "$1" "$2" "$programs/exhaust" threads "$n"
		[ "$output" = "all had memory" ]
		[ "$1" = -d ] || one_line 'the heap can grow to [0-9.]+ MiB at most: .*ulimit -v.*'
	done
}

@test "threads that begin when memory is short get NULL, free, and learn how long blocks are; later they have memory" {
	rows exhausted <<- 'END'
		-v 100000 0
		-v 300000 0
		-v 1000000 0 1 4 20
		-d 300000 0 1 4 20
	END
}

@test "under a limit of addresses a program may destroy an arena" {
	run -0 limited -v 300000 "$programs/ctl" arena
}

@test "small programs start silently under a limit on data of 13 MB or more" {
	local kib
	for kib in {13000..24000..1000}; do
		run -0 --separate-stderr limited -d $kib sort <<< $'b\na'
		[ "$output" = $'a\nb' ]
		[ -z "$stderr" ]
	done
	run -0 --separate-stderr limited -d 22000 python3 -c 'print("works")'
	[ "$output" = works ]
}

@test "under any smaller limit on data, malloc returns NULL and no signal ends the program" {
	local kib
	for kib in {8000..14000..100}; do
		run --separate-stderr limited -d $kib bash -c 'echo works'
		echo "$kib KiB: status $status"
		[ "$status" -lt 128 ]
	done
}

@test "a core dump by a debugger has the heap's blocks, but not its unused reservation" {
	local pid ready
	LD_PRELOAD=$library python3 -c 'import time
small = ["known %d" % n for n in range(1000)]
large = bytearray(100 << 20)
large[50 << 20:0] = b"inmost %d" % (7 * 6)
print("ready", flush=True)
time.sleep(60)' > "$BATS_TEST_TMPDIR/said" 3>&- &
	pid=$!
	for ((i = 0; i < 200 && !ready; i++)); do
		sleep 0.1
		! grep -qx ready "$BATS_TEST_TMPDIR/said" || ready=1
	done
	run -0 bash -c "ulimit -f 1000000; timeout $((60 * ${TIMEOUT_SCALE:-1})) gcore -o '$BATS_TEST_TMPDIR/dump' $pid"
	kill $pid
	dump=$BATS_TEST_TMPDIR/dump.$pid
	echo "$(stat -c %s "$dump") bytes"
	[ "$(stat -c %s "$dump")" -gt $((100 << 20)) ]
	[ "$(stat -c %s "$dump")" -lt $((300 << 20)) ]
	[ "$(grep -aco 'known 77[0-9]' "$dump")" -ge 1 ]
	[ "$(grep -aco 'inmost 42' "$dump")" -ge 1 ]
}

@test "settings in a program linked with jemalloc are not the library's, nor its own the program's" {
	cd "$BATS_TEST_TMPDIR"
	echo 'const char *malloc_conf = "unknown_setting:1"; int main(void) { return 0; }' > settings.c
	echo 'extern const char *malloc_conf __attribute__((weak)); int main(void) { return &malloc_conf != 0; }' > asks.c
	gcc -rdynamic -o settings settings.c
	gcc -fPIE -pie -o asks asks.c
	run -0 --separate-stderr env LD_PRELOAD=libjemalloc.so.2 ./settings
	[[ $stderr == *unknown_setting* ]]
	run -0 --separate-stderr preloaded ./settings
	[ -z "$stderr" ]
	run -0 preloaded ./asks
}

@test "a program with its own malloc gives one line, and works" {
	run -0 --separate-stderr preloaded "$programs/ownmalloc"
	[ "$output" = works ]
	one_line 'malloc is answered by .*/ownmalloc: .*link the program without a malloc of its own'
}

@test "a program that cannot be preloaded prints no options, a dynamic one does" {
	echo 'int main(void) { return 0; }' | gcc -x c -static -o "$BATS_TEST_TMPDIR/static" -
	run -0 preloaded PINALLOC_HELP=1 "$BATS_TEST_TMPDIR/static"
	[ -z "$output" ]
	run -0 preloaded PINALLOC_HELP=1 true
	[[ "$output" == *PINALLOC_REGISTER* ]]
}
