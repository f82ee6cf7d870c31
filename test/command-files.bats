#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: whatever files are among a job's reports, and whatever they contain, `pinalloc report`
# prints one line for each that is not a report, and reports the others.

setup() {
	load helper
	load job
	cd "$BATS_TEST_TMPDIR"
	base_report > "$base"
}

# unfit EDIT PATTERN: a report changed by this edit is skipped, for a reason that has this.
unfit() {
	rank unfit.json "$1"
	run -1 --separate-stderr "$pinalloc" report unfit.json fit.json
	echo "$1: $stderr"
	[ "${#stderr_lines[@]}" -eq 1 ]
	# shellcheck disable=SC2053 # a pattern
	[[ "$stderr" == "pinalloc report: unfit.json "*$2* ]]
	[ "${lines[0]}" = "pinalloc: app, 1 rank on 1 host, 6.5 s" ]
}

@test "a file with a value of the wrong type or size is reported and skipped" {
	rank fit.json '.nranks = 1'
	local schema
	for schema in '.schema = 1' '.schema = 4' 'del(.schema)' '.schema = "2"' '.kind = "job"'; do
		unfit "$schema" 'is no report of one process in schema 2 or 3'
	done
	unfit '[.]' 'host'
	unfit 'del(.host)' 'host'
	unfit '.program = 5' 'program'
	unfit '.trigger = []' 'trigger'
	unfit '.job = 17' 'job'
	unfit '.job.id = 17' 'id'
	unfit '.job.started = "now"' 'started'
	unfit '.pid = null' 'pid'
	unfit '.elapsed_s = "6"' 'elapsed_s'
	unfit '.elapsed_s = 1e300' 'elapsed_s'
	unfit '.rank = 4' 'rank 4 of 4'
	unfit '.rank = 0.5' 'rank'
	unfit '.nranks = 1e9' 'rank 0 of 1000000000'
	unfit '.memory = 3' 'memory'
	unfit 'del(.memory)' 'live_bytes'
	unfit '.memory.mapped_bytes = "12"' 'mapped_bytes'
	unfit '.memory.mapped_bytes = -1' 'mapped_bytes'
	unfit '.memory.rss_peak_bytes = 0.5' 'rss_peak_bytes'
	unfit '.memory.ram_bytes = true' 'ram_bytes'
	unfit '.registration = []' 'registration'
	unfit 'del(.registration.served)' 'served'
	unfit '.watch.events = {}' 'events'
	unfit '.peak_sites = {}' 'peak_sites'
	unfit '.peak_sites_kind = 1' 'peak_sites_kind'
	unfit '.peak_sites += [7]' 'peak_sites\[1\]'
	unfit '.peak_sites[0].bytes = "9"' 'peak_sites\[0\]'
	unfit '.peak_sites[0].stack = "main"' 'peak_sites\[0\]'
	unfit '.peak_sites[0].stack[1] = 3' 'peak_sites\[0\]'
	unfit '.timeline = 0' 'timeline'
	unfit '.timeline[1] = [1, 2]' 'timeline\[1\]'
	unfit '.timeline[2][1] = null' 'timeline\[2\]'
	unfit '.timeline |= reverse' 'timeline\[1\]'
}

@test "a file that is not a report is reported and skipped" {
	four
	head -c 300 "$base" > job/cut.json
	: > job/empty.json
	echo "pinalloc: app, process 1" > job/text.json
	printf '{"schema":3,\x1b[2J}' > job/rude.json
	ln -s missing job/gone.json
	mkdir job/nested.json
	mkfifo job/pipe.json
	run -1 --separate-stderr timeout 20 "$pinalloc" report job
	[ "${lines[0]}" = "pinalloc: app, 4 ranks on 2 hosts, 9.5 s" ]
	[ "${#stderr_lines[@]}" -eq 7 ]
	output=$stderr
	told job/empty.json JSON
	told job/gone.json 'No such file'
	told job/nested.json regular
	told job/pipe.json regular
	told job/cut.json incomplete 'line'
	told job/text.json JSON 'line 1'
	told job/rude.json JSON 'line 1'
	run ! grep -q $'\x1b' <<< "$stderr"
	[ "$("$pinalloc" report --json job 2> /dev/null | jq -c '[.files_skipped[].file]')" = \
		'["job/cut.json","job/empty.json","job/gone.json","job/nested.json","job/pipe.json","job/rude.json","job/text.json"]' ]
}

@test "a record that a report replaces while the directory is read is not lost" {
	rank late.json '.nranks = 1'
	mkdir job
	: > job/0.json.node1.100.running
	gcc -shared -fPIC -o late.so -x c - <<- 'END'
		#define _GNU_SOURCE
		#include <dirent.h>
		#include <dlfcn.h>
		#include <stdio.h>
		#include <unistd.h>

		int scandir(const char *path, struct dirent ***entries, int (*is_wanted)(const struct dirent *),
			    int (*compare)(const struct dirent **, const struct dirent **))
		{
			int (*next)(const char *, struct dirent ***, int (*)(const struct dirent *),
				    int (*)(const struct dirent **, const struct dirent **)) = dlsym(RTLD_NEXT, "scandir");
			int n = next(path, entries, is_wanted, compare);

			rename("late.json", "job/0.json");
			unlink("job/0.json.node1.100.running");
			return n;
		}
	END
	run -0 --separate-stderr env LD_PRELOAD="$PWD/late.so" "$pinalloc" report job
	[ -z "$stderr" ]
	[ "${lines[0]}" = "pinalloc: app, 1 rank on 1 host, 6.5 s" ]
}

@test "if there is nothing to report, the status is 2" {
	mkdir void
	: > void/report.txt
	run -2 --separate-stderr "$pinalloc" report void missing.json
	[ -z "$output" ]
	[[ "${stderr_lines[0]}" == *void*directory* ]]
	[[ "${stderr_lines[1]}" == *missing.json*"No such file"* ]]
	[[ "${stderr_lines[2]}" == *nothing* ]]
	[ "${#stderr_lines[@]}" -eq 3 ]
}

@test "if standard output cannot be written, the status is 2" {
	four
	for form in --json --top=1; do
		run -2 --separate-stderr bash -c "'$pinalloc' report $form job > /dev/full"
		[[ "$stderr" == *"standard output"*"No space left on device"* ]]
		[ "${#stderr_lines[@]}" -eq 1 ]
	done
}

@test "control characters in files and file names do not reach the terminal" {
	rank named.json '.nranks = 1 | .program = "a\u009b31mb\u0085c\u00a0d"'
	run -0 --separate-stderr "$pinalloc" report named.json
	[[ "${lines[0]}" == $'pinalloc: a??31mb??c\xc2\xa0d, '* ]]
	: > $'\e[31m\n.json'
	run -2 --separate-stderr "$pinalloc" report $'\e[31m\n.json'
	[[ "${stderr_lines[0]}" == *" ?[31m?.json is not JSON"* ]]
}

@test "a file that begins with what is no text is no JSON" {
	printf '\xff\xfe{' > wide.json
	run -2 --separate-stderr "$pinalloc" report wide.json
	[[ "${stderr_lines[0]}" == *" wide.json is not JSON, or is incomplete: line 1: "* ]]
}

@test "spaces, quotes and invalid bytes in names of files, programs and hosts do no harm" {
	rank $'the job/rank\t\e\n "\xff".json' '.nranks = 1 | .program = "a \"b\" \\ c\u001b[2J"
		| .host = "no\nde"'
	run -0 --separate-stderr "$pinalloc" report "the job"
	[ -z "$stderr" ]
	said 'pinalloc: a "b" \ c?[2J, 1 rank on 1 host, 6.5 s'
	[[ "$output" == *" no?de "* ]]
	[ "$(merged '.ranks[0] | .program, .host, .file' "the job" | tr '\n' ' ')" = \
		'"a \"b\" \\ c?[2J" "no?de" "the job/rank\t\u001b\n \"?\".json" ' ]
}

@test "a module named in a report may be a pipe, a directory or a device" {
	mkfifo pipe
	rank odd.json ".nranks = 1 | .peak_sites[0].stack =
		[\"$PWD/pipe+0x10\", \"/dev/zero+0x10\", \"/tmp+0x10\", \"//+0x\"]"
	run -0 --separate-stderr timeout 20 "$pinalloc" report --json odd.json
	[ -z "$stderr" ]
	jq -e --arg pipe "$PWD/pipe+0x10" \
		'.peak_sites[0].stack == [$pipe, "/dev/zero+0x10", "/tmp+0x10", "//+0x"]' <<< "$output"
}

@test "a module whose function names are not text does not invalidate the report" {
	local offset
	printf 'void odd(void) __asm__("na\\xefve");\nvoid odd(void) {}\n' |
		gcc -x c -shared -fPIC -o odd.so -
	offset=$(nm odd.so | LC_ALL=C sed -n 's/^0*\([0-9a-f]*\) T na.*/\1/p')
	rank odd.json ".nranks = 1 | .peak_sites[0].stack = [\"$PWD/odd.so+0x$offset\"]"
	run -0 --separate-stderr "$pinalloc" report --json odd.json
	[ -z "$stderr" ]
	jq -e '.peak_sites[0].stack == ["na?ve (odd.so)"]' <<< "$output"
}

@test "a module that has changed since is named, and its frames stay places, the same of all ranks" {
	local id place
	printf 'int one(int n)\n{\n\treturn n;\n}\n' > one.c
	gcc -g -Wl,--build-id -shared -fPIC -o one.so one.c
	id=$(readelf -n one.so | sed -n 's/^ *Build ID: //p')
	place=$PWD/one.so+0x$(nm one.so | sed -n "s/ T one$//p")
	rank job/0.json ".nranks = 2 | .peak_sites[0].stack = [\"$place\"] | .modules = {\"$PWD/one.so\": \"$id\"}"
	rank job/1.json ".nranks = 2 | .rank = 1 | .peak_sites[0].stack = [\"$place\"] | .modules = {\"$PWD/one.so\": \"\"}"
	run -0 --separate-stderr "$pinalloc" report --json job
	[ -z "$stderr" ]
	jq -e '.peak_sites | length == 1 and .[0].ranks == 2 and .[0].stack == ["one (one.c:2)"]' <<< "$output"
	sed -i '1i int another;' one.c
	gcc -g -Wl,--build-id -shared -fPIC -o one.so one.c
	rank job/1.json ".nranks = 2 | .rank = 1 | .peak_sites[0].stack = [\"$place\"] | .modules = {\"$PWD/one.so\": \"$id\"}"
	run -0 --separate-stderr "$pinalloc" report --json job
	[ "$stderr" = "pinalloc report: $PWD/one.so has changed since the job ran, so its functions are not named; run this where the file is as it was" ]
	jq -e --arg place "$place" '.peak_sites | length == 1 and .[0].ranks == 2 and .[0].stack == [$place]' <<< "$output"
}

@test "lines are found where the compiler writes no .debug_aranges, as clang does not" {
	printf 'int one(int n)\n{\n\treturn n;\n}\n' > one.c
	printf 'int two(int n)\n{\n\treturn n;\n}\n' > two.c
	gcc -g -shared -fPIC -o units.so one.c two.c
	objcopy --remove-section .debug_aranges units.so
	for name in one two; do
		rank $name.json ".nranks = 1 | .peak_sites[0].stack =
			[\"$PWD/units.so+0x$(nm units.so | sed -n "s/ T $name$//p")\"]"
		run -0 --separate-stderr "$pinalloc" report --json $name.json
		[ "$(jq -r '.peak_sites[0].stack[0]' <<< "$output")" = "$name ($name.c:2)" ]
	done
}

@test "the reason why a file is skipped has no control characters, also in JSON" {
	rank fit.json '.nranks = 1'
	printf '{\177' > unfit.json
	run -1 --separate-stderr "$pinalloc" report --json fit.json unfit.json
	[[ "$(jq -r '.files_skipped[0].why' <<< "$output")" == "is not JSON, or is incomplete: "*"near '?'" ]]
}
