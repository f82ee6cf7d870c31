#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: each process that ends writes one report, completely or not at all, to the requested
# place in the requested form; its figures are correct.
load helper

setup() {
	mkdir "$BATS_TEST_TMPDIR/here"
	cd "$BATS_TEST_TMPDIR/here"
	grow=$programs/grow
}

@test "PINALLOC_REPORT=stderr: the first line identifies the process, the next four have the answers" {
	run -0 --separate-stderr preloaded PINALLOC_REPORT=stderr "$grow" 100
	[ -z "$output" ]
	[[ "${stderr_lines[0]}" =~ ^pinalloc:\ grow,\ process\ [0-9]+\ on\ $(uname -n),\ [0-9]+\.[0-9]\ s$ ]]
	[ "${stderr_lines[1]}" = "  Registrations of heap memory: none were requested." ]
	[[ "${stderr_lines[2]}" =~ the\ heap\ grew\ to\ 1[0-9][0-9]\.[0-9]\ MiB\;\ [0-9]*\.0\ KiB\ of\ that\ were\ touched ]]
	[[ "${stderr_lines[3]}" == "  No limit was near; the nearest: "* ]]
	[[ "${stderr_lines[4]}" == "  Beside the heap: "*" MiB in memory ("*"mapped files "* ]]
}

@test "PINALLOC_REPORT=stderr works if the program closes standard error as it ends" {
	run -0 --separate-stderr preloaded PINALLOC_REPORT=stderr ls -d /
	[ "$output" = / ]
	[[ "${stderr_lines[0]}" == "pinalloc: ls, process "* ]]
}

@test "PINALLOC_REPORT=stderr never writes to a file that reuses the descriptor" {
	for first in 0 3; do
		run -0 --separate-stderr preloaded PINALLOC_REPORT=stderr /usr/bin/python3 -c "
import os
os.closerange($first, 1024)
while os.open('file', os.O_WRONLY | os.O_CREAT) < 200: pass"
		[ -e file ]
		[ ! -s file ]
	done
	[[ "${stderr_lines[0]}" == "pinalloc: python3, process "* ]]
}

# what_is_said STATEMENT: what a program prints if its report cannot be written any more as it ends,
# after running the statement.
what_is_said() {
	mkdir -p gone
	preloaded PINALLOC_REPORT=gone/out /usr/bin/python3 -c "
import os
os.rename('gone', f'gone.{os.getpid()}')
def opened():
    return os.open('file', os.O_RDWR | os.O_CREAT)
$1"
}

@test "messages never go to a file that reuses the descriptor of standard error" {
	run -0 what_is_said 'os.close(2); assert opened() == 2'
	[ -z "$output" ]
	run -0 what_is_said 'os.dup2(opened(), 2)'
	[ -z "$output" ]
	what_is_said 'assert opened() == 2' 2>&-
	[ -e file ]
	[ ! -s file ]
	run -0 what_is_said 'kept = os.dup(2); os.dup2(opened(), 2); os.dup2(kept, 2)'
	[[ "$output" == *"the report cannot be written to $PWD/gone/out: "* ]]
}

@test "a path may contain the host, the process and the rank" {
	run -0 preloaded PINALLOC_REPORT="$PWD/%h-%p-%r.txt" PMI_RANK=3 PMI_SIZE=8 "$grow" 1
	[ -z "$output" ]
	file=$(ls)
	[[ "$file" =~ ^$(uname -n)-[0-9]+-3\.txt$ ]]
	[[ "$(head -n 1 "$file")" == *", rank 3 of 8, "* ]]
}

@test "the report is JSON with the documented keys if the path ends in .json, else text" {
	preloaded PINALLOC_REPORT=out.json OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "$grow" 1
	jq -e '[.schema, .rank, .nranks, .program, .trigger, .job.id] == [3, 1, 2, "grow", "at exit", null] and
		.job.started <= now and .job.started > now - 3600 and
		.timeline_columns == ["seconds", "live_bytes", "mapped_bytes", "pinned_bytes"] and
		(.timeline | all(length == 4)) and ([.version, .host] | all(type == "string")) and
		([.pid, .elapsed_s, (.memory | .live_bytes, .mapped_bytes, .pinned_bytes, .pinned_peak_bytes,
			.rss_peak_bytes, .growth_steps), (.registration | .mr_created, .mr_ahead, .mr_destroyed,
			.served, .passed_through, .refused, .evicted, .seconds)] | all(type == "number")) and
		.registration.domains == [] and .watch ==
			{on: false, registrations: 0, unwatchable: 0, events: 0, invalidations: 0, forgotten: 0}' out.json
	grep -qE '"started":[0-9]+\.[0-9]{3}\}' out.json
	# Outside of a job, and as text.
	preloaded PINALLOC_REPORT=out.json "$grow" 1
	jq -e 'has("rank") and has("nranks") and .rank == null and .nranks == null' out.json
	for name in out.txt out.json.txt json; do
		preloaded PINALLOC_REPORT=$name "$grow" 1
		[[ "$(head -n 1 $name)" == "pinalloc: grow, "* ]]
	done
}

# refused PATH WHY: one line says at the start that there can be no report, and the program goes on.
refused() {
	run -0 --separate-stderr preloaded PINALLOC_REPORT="$1" bash -c 'echo begins >&2; exec true'
	echo "$stderr"
	[ "${#stderr_lines[@]}" -ge 2 ]
	[[ "${stderr_lines[0]}" == *"the report cannot be written to $2" ]]
	[ "${stderr_lines[1]}" = begins ]
	run -0 --separate-stderr preloaded PINALLOC_REPORT="$1" "$grow" 20
	[ "${#stderr_lines[@]}" -eq 1 ]
}

irregular='that is a link, a directory, or something else that is no regular file; name a file, such as %r.json'

@test "a path that cannot be written is told at the start, as it is understood" {
	refused "none/%h.json" "$PWD/none/$(uname -n).json: No such file or directory"
	refused "%q.json" "%q.json: of %, only %h (host), %p (process), %r (rank) and %% are known"
	refused "100%" "100%: of %, only %h (host), %p (process), %r (rank) and %% are known"
	mkdir sub
	refused sub "$PWD/sub: $irregular"
	preloaded PINALLOC_REPORT=100%%.json "$grow" 1
	[ -s 100%.json ]
}

@test "off in any case is no name of a file" {
	for off in OFF Off off of; do
		preloaded PINALLOC_REPORT=$off "$grow" 20
	done
	[ "$(ls)" = of ]
}

@test "a directory that the program makes is there in time, and a relative path leads from where the process began" {
	run -0 --separate-stderr preloaded PINALLOC_REPORT=later/out.json \
		/usr/bin/python3 -c 'import os; os.mkdir("later"); os.chdir("later")'
	[ "${#stderr_lines[@]}" -eq 1 ]
	[ "$(figure later/out.json .program)" = python3 ]
}

@test "no link, pipe or device is followed, waited for or replaced" {
	mkfifo pipe
	ln -s target link
	ln -s /dev/null sink
	for path in pipe link sink; do
		refused $path "$PWD/$path: $irregular"
	done
	refused /dev/stderr "/dev/stderr: $irregular"
	[ -p pipe ]
	[ "$(find . -type l | wc -l)" -eq 2 ]
	[ "$(ls | xargs)" = "link pipe sink" ]
}

@test "what comes in the way between the start and the end is not followed either" {
	# put KIND: a program that puts it where its report is to go.
	put() {
		rm -rf out.json target
		run -0 --separate-stderr timeout $((60 * ${TIMEOUT_SCALE:-1})) env LD_PRELOAD="$library" PINALLOC_REPORT=out.json \
			/usr/bin/python3 -c "import os; $1"
	}
	for way in 'os.mkfifo("out.json")' 'os.symlink("target", "out.json")' 'os.symlink("/dev/stdout", "out.json")'; do
		put "$way"
		[ -z "$output" ]
		[[ "$stderr" == *"cannot be written to $PWD/out.json: $irregular" ]]
		[ ! -s out.json ]
		[ "$(ls | grep -v 'running$')" = out.json ]
	done
	put 'p = os.getpid(); os.symlink("target", f"out.json.{p}.part"); os.mkfifo(f"out.json.{p}.old")'
	[ -z "$output$stderr" ]
	[ "$(figure out.json .program)" = python3 ]
	[ ! -e target ]
}

@test "another user's file in a directory like /tmp stays" {
	mkdir -m 1777 shared
	echo theirs > shared/out.json
	chown 65533 shared/out.json
	touch -d '1 hour ago' shared/out.json
	# The tree that is tested may be one that only its owner can enter.
	cp "$library" "$grow" .
	chmod 755 .
	run unshare --mount sh -c 'mount --bind . /mnt && cd /mnt && exec "$@"' sh \
		setpriv --reuid 65534 --clear-groups --inh-caps=-all --bounding-set=-all \
		env LD_PRELOAD="/mnt/${library##*/}" PINALLOC_REPORT=/mnt/shared/out.json "./${grow##*/}" 1
	[[ "$output" == *"cannot be written to /mnt/shared/out.json: "* ]]
	[ "$(cat shared/out.json)" = theirs ]
	[ "$(ls shared)" = out.json ]
}

# gather COUNT: until so many $ranks have started; then all of them end.
gather() {
	until [ "$(ls .. | grep -c started)" -eq "$1" ]; do
		sleep 0.05
	done
	: > ../go
	wait "${ranks[@]}"
}

@test "processes that end with one path keep their reports, under numbers, and say so" {
	local rank ranks=()
	echo before > out.json
	touch -d '1 hour ago' out.json
	for rank in 0 1 2 3; do
		preloaded PINALLOC_REPORT=out.json PMI_RANK=$rank PMI_SIZE=4 /usr/bin/python3 -c "
import os, time
open('../started.$rank', 'w')
while not os.path.exists('../go'): time.sleep(0.001)" 2>> ../said 3>&- &
		ranks+=($!)
	done
	gather 4
	[ "$(jq .rank ./* | sort | xargs)" = "0 1 2 3" ]
	[ "$(ls | xargs)" = "out.2.json out.3.json out.4.json out.json" ]
	[ "$(wc -l < ../said)" -eq 3 ]
	[ "$(grep -c "$PWD/out.json has the report of another process: that of this one is $PWD/out.[2-4].json" ../said)" -eq 3 ]
	# When they run again, right behind each other, theirs are replaced.
	for rank in {1..8}; do
		preloaded PINALLOC_REPORT=out.json "$grow" 1 2>> ../said
	done
	[ "$(figure out.json .rank)" = null ]
	[ "$(ls | wc -l) $(wc -l < ../said)" = "4 3" ]
}

@test "100 MiB allocated and not touched are live and mapped, but not resident" {
	preloaded PINALLOC_REPORT=out.json "$grow" 100
	preloaded PINALLOC_REPORT=none.json "$grow" 0
	# Of the first growth step an idle program needs no second.
	jq -es 'def mib: 1048576; map(.memory) as [$it, $none] | $it.live_bytes >= 100 * mib and $it.live_bytes < 102 * mib and
		$it.mapped_bytes >= $it.allocated_bytes and $it.allocated_bytes >= $it.live_bytes and
		$it.page_faults > 0 and $it.page_faults * 4096 < 50 * mib and $it.mapped_bytes < 200 * mib and $it.growth_steps > 1 and
		$it.rss_peak_bytes > mib and $it.rss_peak_bytes < 50 * mib and $none.live_bytes < mib and
		$none.growth_steps == 1 and $none.mapped_bytes < $it.mapped_bytes / 2' out.json none.json
}

@test "a control group's peak is what it has now where the kernel keeps none; what is above memory.high is warned of" {
	# above EVENTS RANKS: what is said of a heap that has half of what is allowed.
	above() {
		run -0 grouped memory.high 67108864 memory.current 52428800 memory.events "low 0\nhigh $1\n" \
			sh -ec 'mkdir -p /sys/fs/cgroup/memory/memory
			echo 1048576 > /sys/fs/cgroup/memory/memory/memory.limit_in_bytes
			echo 1:cpu:/memory >> /sys/fs/cgroup/own
			exec "$@"' sh env OMPI_COMM_WORLD_LOCAL_SIZE=$2 LD_PRELOAD="$library" PINALLOC_REPORT=out.json "$grow" 30
	}
	above 3 1
	[ -z "$output" ]
	above 0 2
	[ -z "$output" ]
	above 3 2
	[[ "$output" == *"the control group was above its memory.high, 64.0 MiB, "* ]]
	jq -e '.memory | .cgroup_peak_bytes == 52428800 and .cgroup_high_bytes == 67108864' out.json
}

@test "if writing fails, the previous report stays complete; no temporary file is left" {
	echo before > out
	touch -d '1 hour ago' out
	run -1 bash -c "trap '' XFSZ; ulimit -f 0
		LD_PRELOAD='$library' PINALLOC_REPORT=out exec '$programs/exhaust'"
	[[ "$output" == *"the report cannot be written to $PWD/out: File too large" ]]
	[ "$(ls)" = out ]
	[ "$(cat out)" = before ]
	preloaded PINALLOC_REPORT=out "$grow" 1
	[ "$(ls)" = out ]
	[ "$(cat out)" != before ]
}

# Uses a file system of 512 KiB that holds the previous report, and has some free space or none.
@test "on a full disk the previous report stays complete, and one line says so" {
	for room in 0 1; do
		run -0 unshare --mount bash -ec "
			mount -t tmpfs -o size=512k none .
			cd \"\$PWD\"
			echo before > out.json
			dd if=/dev/zero of=filler bs=4k count=$((127 - room)) status=none
			LD_PRELOAD='$library' PINALLOC_REPORT=out.json '$grow' 200
			[ \"\$(ls | xargs)\" = 'filler out.json' ]
			[ \"\$(cat out.json)\" = before ]
			rm filler
			LD_PRELOAD='$library' PINALLOC_REPORT=out.json '$grow' 200
			[ \"\$(stat -c %s out.json)\" -gt 4096 ]"
		echo "$output"
		[ "${#lines[@]}" -eq 2 ]
		[[ "${lines[0]}" == *"the record beside $PWD/out.json cannot be written: No space left on device; "* ]]
		[[ "${lines[1]}" == *"cannot be written to $PWD/out.json: No space left on device" ]]
	done
}

@test "of a script that calls helpers there is one report, and one of each that held more than a little" {
	local library=$PWD/lib/libpinalloc.so
	mkdir lib
	cp "$top_builddir/.libs/libpinalloc.so" lib
	cat > script <<- 'END'
		#!/bin/bash
		d=$(dirname "$(readlink -f "$0")")
		x=$(basename "$d"; echo "$(uname)")
		env true
		"$1" 1
		"$1" 3
		python3 -c 'import mmap; mmap.mmap(-1, 6 << 20).write(bytes(6 << 20))'
	END
	run -0 --separate-stderr preloaded PINALLOC_REPORT=stderr bash script "$grow"
	[ "$(sed -n 's/^pinalloc: \([a-z]*\)[0-9.]*, process .*/\1/p' <<< "$stderr" | xargs)" = 'grow python bash' ]
	run -0 preloaded PINALLOC_REPORT="$PWD/%p.json" bash script "$grow"
	[ "$(ls ./*.json | wc -l)" -gt 5 ]
	[ "$(jq -s 'map(select(.program == "grow").peak_sites[]) | length' ./*.json)" -eq 0 ]
	rm ./*.json
	# The number is added in silence. Outside of a job the program that ran last replaces the one before.
	run -0 --separate-stderr preloaded PINALLOC_REPORT="$PWD/out.json" bash script "$grow"
	[ -z "$stderr" ]
	[ "$(jq -r .program out*.json | sed 's/[0-9.]*$//' | xargs)" = 'bash python' ]
	rm out*.json
	# A rank is no helper of what has started it, which is none.
	preloaded PINALLOC_REPORT="%r.json" A_PMI_RANK=3 bash -c "PMI_RANK=3 '$grow' 1; true"
	preloaded PINALLOC_REPORT="%r.json" PMI_RANK=4 bash -c "'$grow' 1; true"
	[ "$(jq -r .program 3.json none.json 4.json | xargs)" = 'grow bash bash' ]
}

@test "memory in use is counted by kind: the heap, other anonymous memory, files, shared memory" {
	preloaded PINALLOC_REPORT=none.json "$programs/kinds"
	preloaded PINALLOC_REPORT=some.json "$programs/kinds" 16
	# A mapping, what brk() gave, and a stack, of 16 MiB each, are anonymous memory. The file may be on tmpfs.
	jq -es 'map(.resident | [.heap_bytes, .anonymous_bytes, .file_bytes + .shared_bytes, .hugetlb_bytes]) | transpose |
		[map((.[1] - .[0]) / 1048576), [16, 48, 32, 0]] | transpose | all(.[0] - .[1] | . > -1 and . < 2)' none.json some.json
}

# names COMMAND…: the programs of the reports that it leaves, that of out.json last, twice: the first run's go.
names() {
	local run
	for run in 1 2; do
		run -0 --separate-stderr preloaded PINALLOC_REPORT="$PWD/out.json" "$@"
		[ -z "$stderr" ]
		[ "$(jq -r .program out*.json | sed 's/[0-9.]*$//' | xargs)" = "$names" ]
	done
	rm out*.json
}

@test "the path has the report of what a shell or launcher ran last, not of what that started" {
	local python=/usr/bin/python3 names
	names=grow names nice env A=B "$grow" 5
	names='timeout grow' names timeout 60 "$grow" 5
	names='timeout grow' names timeout 60 bash -c "'$grow' 5; true"
	names='grow python' names "$python" -c "import os; os.system('\'$grow\' 5; true')"
	names='grow timeout python' names timeout 60 "$python" -c "import os; bytes(6 << 20); os.system('\'$grow\' 5; true')"
	# As do shims: what they ran first keeps its report.
	names='python grow' names bash -c "'$python' -c 'bytes(6 << 20)'; exec '$grow' 5"
	export PMI_RANK=0 PMI_SIZE=1
	names='python grow' names bash -c "'$python' -c 'bytes(6 << 20)'; exec '$grow' 5"
	names='python bash grow' names bash -c "'$python' -c 'bytes(6 << 20)'; '$grow' 5; true"
}

# As does a program that calls system(), and a script that executes the program at its end.
@test "processes that have waited for others keep their reports, too" {
	local rank ranks=()
	for rank in 0 1 2 3; do
		preloaded PINALLOC_REPORT="$PWD/out.json" PMI_RANK=$rank PMI_SIZE=4 bash -c "uname
			touch ../started.$rank
			until [ -e ../go ]; do sleep 0.01; done
			((PMI_RANK % 2)) && exec '$grow' 1
			true" > ../output 2>> ../said 3>&- &
		ranks+=($!)
	done
	gather 4
	[ "$(jq -r '"\(.rank)\(.program)"' ./* | sort | xargs)" = "0bash 1grow 2bash 3grow" ]
}

@test "a forked child that used much reports beside its parent, what it has beside its parent" {
	run -0 --separate-stderr preloaded PINALLOC_REPORT=out.json /usr/bin/python3 -c '
import os
kept = bytearray(200 << 20)
for i in range(4):
    if not os.fork():
        used = bytearray((i * 12) << 20)
        raise SystemExit
for i in range(4):
    os.wait()'
	[ -z "$output$stderr" ]
	[ "$(ls | wc -l)" -eq 4 ]
	[ "$(jq -r '"out.\(.pid).json"' out.[0-9]*.json)" = "$(ls out.[0-9]*.json)" ]
	# The parent has the rest.
	jq -es '.[-1] as $parent | ($parent | has("parent") == false) and (map(.memory.live_peak_bytes / 12582912 | round)[:3] | sort) == [1, 2, 3] and
		(.[:3] | all(.parent == $parent.pid and (.timeline | all(.[1] <= .[2])) and
		.resident.heap_bytes <= .memory.mapped_bytes and (.peak_sites | map(.bytes) | add) < 190 * 1048576 and
		(.memory | .pss_bytes + 190 * 1048576 < .rss_bytes and .pss_bytes > .live_peak_bytes)))' out.[0-9]*.json out.json
}

@test "phases are in the report, in the record of who is killed, and not in a forked child's" {
	local program='
import os, sys, pinalloc
pinalloc.mark("read")
kept = bytearray(64 << 20)
del kept
pinalloc.mark("solve")
assert pinalloc.stats()["live_peak_since_mark"] < 64 << 20 <= pinalloc.stats()["live_peak"]
if not os.fork():
    used = bytearray(40 << 20)
    raise SystemExit
os.wait()
if sys.argv[1:]:
    os.kill(os.getpid(), 9)
pinalloc.mark()'
	PYTHONPATH=$top_srcdir/preload/python preloaded PINALLOC_REPORT=out.json /usr/bin/python3 -c "$program"
	jq -e '.phases | map(.name) == ["read", "solve"] and .[0].live_peak_bytes >= 67108864 and .[0].grown_bytes > 0 and
		.[1].live_peak_bytes < 67108864 and all(.began_s < .ended_s and .seconds > 0)' out.json
	jq -e 'has("phases") == false and has("parent")' out.[0-9]*.json
	rm ./*.json
	PYTHONPATH=$top_srcdir/preload/python run -137 preloaded PINALLOC_REPORT=out.json /usr/bin/python3 -c "$program" killed
	"$top_builddir/pinalloc" report --json ./out.json.*.running | jq -e '.phases | map(.name) == ["read", "solve"]'
}

@test "resident memory is reported for a process in any number of groups" {
	python3 -c 'import os, sys
os.setgroups(range(1000000, 1001000))
os.environ.update(LD_PRELOAD=sys.argv[1], PINALLOC_REPORT=sys.argv[2])
os.execv(sys.argv[3], [sys.argv[3], "1"])' "$library" "$BATS_TEST_TMPDIR/out.json" "$programs/grow"
	[ "$(figure "$BATS_TEST_TMPDIR/out.json" .memory.rss_peak_bytes)" -ge $((1 << 20)) ]
}
