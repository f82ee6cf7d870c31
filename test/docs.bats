#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The documents describe the options as the library does, and what they name exists.
load helper

setup() {
	help=$(PINALLOC_HELP=1 preloaded /bin/true)
}

# names: of the options that PINALLOC_HELP prints.
names() {
	sed -nE 's/^((PIN|M)ALLOC_[A-Z_]+) .*/\1/p' <<< "$help" | sort
}

@test "README's two commands exist and stand in its first 50 lines; .ci/run calls the second" {
	local command
	for command in bench/demo test/run; do
		head -n 50 "$top_srcdir/README" | grep -E "^    bash $command( |\$)"
		[ -x "$top_srcdir/$command" ]
	done
	grep -xE 'exec test/run "\$@"' "$top_srcdir/.ci/run"
}

# scripts: those of this tree that can be executed, but for those that Debian's tools call. Not among them are
# test/lab/guest-init and guest-stage2, the first programs of a lab machine: on a host they would power it off.
scripts() {
	find .ci bench preload test "${top_builddir}/test/acceptance/pinalloc-acceptance" -type f -perm -u+x \
		-exec awk 'FNR == 1 && /^#!/ { print FILENAME } { nextfile }' {} + |
		grep -vE '^(preload/packaging/debian|test/(programs|evidence))/|^test/unit-'
}

# bats test_tags=slow
@test "every script answers --help with its usage, and starts nothing" {
	local script n=0 started=$BATS_TEST_TMPDIR/started
	cd "$top_srcdir"
	for script in $(scripts); do
		echo "$script --help"
		PATH=/usr/bin:/bin run -0 --separate-stderr strace -f -qq -e trace=execve -e signal=none -o "$started" \
			timeout $((60 * ${TIMEOUT_SCALE:-1})) "$script" --help
		[[ "$output" == *usage:* ]]
		[ -z "$stderr" ]
		run ! grep -vE "execve\\(\"[^\"]*/(${script##*/}|run|timeout|env|(ba)?sh|sed|cat|dirname|readlink|realpath|uname|python3[.0-9]*)\"|resumed>" "$started"
		n=$((n + 1))
	done
	[ "$n" -ge 30 ]
}

@test "pinalloc(7) has every option with its default, and no other" {
	local name default n=0
	diff <({ names; echo PINALLOC_HELP; } | sort) \
		<(sed -nE 's/^\.It Ev ((PIN|M)ALLOC_[A-Z_]+)$/\1/p' "$top_srcdir/preload/pinalloc.7" | sort)
	while read -r name default; do
		echo "looking for: $name ($default)"
		awk -v name="$name" '$0 == ".It Ev " name { on = 1; next } /^\.It/ { on = 0 } on' \
			"$top_srcdir/preload/pinalloc.7" | tr '\n' ' ' | grep -F " ($default)"
		n=$((n + 1))
	done < <(sed -nE 's/^((PIN|M)ALLOC_[A-Z_]+) .*\(([^()]*)\)$/\1 \3/p' <<< "$help")
	[ "$n" -eq "$(names | wc -l)" ]
}

@test "pinalloc(7) has every key of a JSON report" {
	local key n=0
	preloaded PINALLOC_REPORT="$report" PINALLOC_SAMPLE=64K perl -e '@x = map { $_ x 50 } 1 .. 100000'
	for key in $({
		sed -n 's/^FIGURE([A-Z_]*, [a-z]*, \([a-z_]*\),.*/\1/p' "$top_srcdir/preload/figures.def"
		jq -r 'del(.modules, .registration.passed_through_reasons[]) | paths | map(strings) | last // empty' \
			"$report"
	} | sort -u) parent passed_through_reasons device mrs; do
		echo "looking for: $key"
		tr -s ' \n' ' ' < "$top_srcdir/preload/pinalloc.7" | grep -qE "[ (\"]$key[ ,.;)\"]"
		n=$((n + 1))
	done
	[ "$n" -ge 60 ]
}

@test "README and pinalloc(7) stay short enough to be read" {
	[ "$(wc -l < "$top_srcdir/README")" -le 130 ]
	# Not as it is laid out: groff 1.23 breaks lines otherwise than 1.22.
	[ "$(wc -l < "$top_srcdir/preload/pinalloc.7")" -le 575 ]
}

@test "the options that documents name exist" {
	local document name n=0
	for document in README preload/pinalloc.{1,3,7} preload/pinalloc-{admin,problems,python}.7; do
		for name in $(grep -oE '\bPINALLOC_[A-Z_]*[A-Z]' "$top_srcdir/$document" | sort -u); do
			echo "looking for: $name, of $document"
			grep -qx "$name" <(names) || grep -qw "$name" "$top_srcdir/preload/pinalloc.h" ||
				[ "$name" = PINALLOC_HELP ]
			n=$((n + 1))
		done
	done
	[ "$n" -ge 5 ]
}

@test "every public function is in pinalloc(3)" {
	local name names
	names=$(grep -o 'pinalloc_[a-z_]*(' "$top_srcdir/preload/pinalloc.h" | sort -u)
	[ -n "$names" ]
	for name in $names; do
		grep -q "${name%(}" "$top_srcdir/preload/pinalloc.3"
	done
}

@test "pinalloc(1) and (7) have every option in the command's help and every key of its JSON" {
	local options keys page=$top_srcdir/preload/pinalloc.1
	# Options of run and check that stand for variables are described in pinalloc(7).
	options=$({
		"$top_builddir/pinalloc" report --help
		"$top_builddir/pinalloc" run --help | grep -E -- '--(help|usage)'
	} | tr ' ' '\n' | grep '^--[a-z]')
	[ -n "$options" ]
	for option in $options; do
		option=${option%%=*}
		echo "looking for: $option"
		grep -qE "Fl Fl ${option#--}( |\$)" "$page"
	done
	load job
	cd "$BATS_TEST_TMPDIR"
	four
	made
	echo > job/empty.json
	pinalloc report --json job > merged || [ $? -eq 1 ]
	keys=$(jq -r 'paths | map(strings) | last // empty' merged | sort -u)
	[ -n "$keys" ]
	for key in $keys; do
		echo "looking for: $key"
		grep -qE "^\.Li (.* )?$key( |\$)|^\.It Li (.* )?$key( |\$)" "$page" || grep -qw "$key" "${page%.1}.7"
	done
}

# named PAGE: prints "NAME FILE" for each `NAME (FILE.c)` in a page.
named() {
	tr -s '\n ' ' ' < "$1" | grep -oE '[A-Za-z_][A-Za-z0-9_]* \([A-Za-z0-9_./-]+\.[ch]\)' | tr -d '()'
}

# called PAGE: the functions that a page writes as NAME(...), except those with a manual section.
called() {
	tr -s '\n ' ' ' < "$1" | grep -oE '[A-Za-z_][A-Za-z0-9_]*\([^)]*\)' |
		grep -vE '\([1-9]\)$' | sed 's/(.*//'
}

# located DIRECTORY FILE: the path of a file that a page in that directory names.
located() {
	if [ -e "$1/$2" ]; then echo "$1/$2"; else echo "$2"; fi
}

# defines NAME FILE…: whether these files have a function of this name, or a macro, of which the first line is not
# indented; a prototype ends in a semicolon.
defines() {
	grep -qE "^(#define $1\(|[A-Za-z_].*[ *]$1\([^;]*$|$1\([^;]*$)" "${@:2}"
}

@test "every function and file named in a DESIGN exists" {
	local page directory name file n
	cd "$top_srcdir"
	defines pin_span_grow allocator/span.c
	run ! defines pin_run_take allocator/large.c
	for page in allocator/DESIGN regpool/DESIGN preload/DESIGN; do
		directory=${page%/*}
		n=0
		while read -r name file; do
			echo "$page: $name ($file)"
			defines "$name" "$(located "$directory" "$file")"
			n=$((n + 1))
		done < <(named "$page")
		[ "$n" -ge 1 ]
		for name in $(called "$page"); do
			echo "$page: $name()"
			defines "$name" {allocator,regpool,preload,preload/report,preload/command}/*.[ch]
		done
		for file in $(grep -oE '[A-Za-z0-9_][A-Za-z0-9_./-]*\.(ac|am|bats|c|h|map)\b' "$page"); do
			echo "$page: $file"
			[ -e "$(located "$directory" "$file")" ]
		done
	done
}

# paths FILE: the paths in this tree that it names, including shell patterns.
paths() {
	grep -oE '(^|[^A-Za-z0-9_./-])(allocator|regpool|preload|bench|test)/[A-Za-z0-9_./*-]*' "$1" |
		sed -E 's/^[^a-z]+//; s/[.-]+$//' | sort -u
}

# refused SCRIPT ARGUMENT
refused() {
	run -2 "$top_srcdir/$1" "${@:2}"
	[ "${#lines[@]}" -eq 1 ]
}

@test "README's two commands, and bench/all, refuse what they do not know, in one line" {
	rows refused <<- 'END'
		bench/all: no directory
		bench/demo 3x: a number of rounds only
		test/run --al: usage
		test/run lab: usage
	END
}

@test "every path in README, bench/RESULTS and test/HACKING exists or is built" {
	there() {
		[ -e "$top_srcdir/$1" ] || [ -e "$top_builddir/$1" ] ||
			[ -e "$top_srcdir/$1.c" ] || compgen -G "$top_srcdir/$1"
	}
	local document
	set -f # the paths may be patterns
	for document in README bench/RESULTS test/HACKING; do
		rows there < <(paths "$top_srcdir/$document")
	done
}

# They are no part of a build, and use names of the library. mpicc is gcc with the directory of mpi.h.
# bats test_tags=slow
@test "every program of bench/ compiles without a warning" {
	cd "$top_srcdir"
	mpicc.openmpi -std=gnu11 -Wall -Wextra -Werror -fsyntax-only -I. -I"$top_builddir" \
		bench/*.c bench/workloads/*.c
}

@test "bench/all runs every script in bench/, and bench/RESULTS has a section for each" {
	local script n=0
	for script in "$top_srcdir"/bench/*; do
		[ -f "$script" ] && [ -x "$script" ] || continue
		script=bench/${script##*/}
		case $script in
		bench/all | bench/registration-guest | bench/watch-rounds) continue ;;
		esac
		echo "looking for: $script"
		grep -qE "^run [a-z-]+ $script( |\$)" "$top_srcdir/bench/all"
		grep -qE "^    $script( |\$)" "$top_srcdir/bench/RESULTS"
		n=$((n + 1))
	done
	[ "$n" -ge 1 ]
	grep -qF "bench/stale -g $(sed -n 's/^ways=//p' "$top_srcdir/bench/all")" \
		"$top_srcdir/bench/RESULTS"
}
