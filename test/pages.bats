#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The manual pages can be read at any terminal, and what is pasted from them works.
load helper

setup() {
	cd "$BATS_TEST_TMPDIR"
	pages=("$top_srcdir"/preload/pinalloc*.[137])
	[ "${#pages[@]}" -ge 4 ]
}

# printed FORMATTER WIDTH PAGE: the page as a terminal shows it.
printed() {
	case $1 in
	groff) groff -mandoc -Tascii -rLL="$2n" -P-c -ww "$3" ;;
	mandoc) mandoc -T ascii -O width="$2" "$3" ;;
	esac | col -b | expand
}

# written PAGE: its examples, each behind a line "example FIRST-LINE-NUMBER".
written() {
	awk '/^\.Bd -literal/ { on = 1; print "example " NR; next } /^\.Ed/ { on = 0 } on' "$1" |
		sed "s/\\\\(aq/'/g; s/\\\\(ha/^/g; s/\\\\(ti/~/g; s/\\\\-/-/g; s/\\\\&//g; s/\\\\e/\\\\/g"
}

# split: writes each example on standard input to a file of its own, named by its number.
split() {
	rm -rf examples
	mkdir examples
	awk '/^example [0-9]+$/ { file = "examples/" $2; next } { print > file }'
}

# found LINES FILE: prints as many lines of the file, from where its first line is that of standard
# input, without the margin of the first.
found() {
	first=$(head -n 1) awk -v lines="$1" '
		!on && substr($0, match($0, /[^ ]/)) == ENVIRON["first"] { on = 1; margin = RSTART }
		on && lines-- > 0 { print substr($0, margin) }' "$2"
}

# example FIRST: the example of pinalloc-admin(7) whose first line begins so, as it is printed.
example() {
	printed groff 80 "$top_srcdir/preload/pinalloc-admin.7" |
		awk -v first="$1" '
			!on && index($0, first) { on = 1; margin = match($0, /[^ ]/) }
			on && /^ *$/ { exit }
			on { print substr($0, margin) }'
}

# shown [FORMATTER] TEST…: runs this for each page as the formatters print it, or that one, at two widths: it is in the
# file `shown`, $width and $page are what they are.
shown() {
	local formatter formatters='groff mandoc' page width
	[ "$1" != groff ] || { formatters=groff && shift; }
	for page in "${pages[@]}"; do
		for width in 80 100; do
			for formatter in $formatters; do
				echo "$formatter, $width, $page:"
				printed "$formatter" "$width" "$page" > shown
				"$@"
			done
		done
	done
}

@test "no line is wider than the terminal" {
	too_wide() {
		run -1 grep -E ".{$((width + 1))}" shown
	}
	shown too_wide
}

@test "no name is broken at the end of a line" {
	shown groff run -1 grep -E '([A-Za-z]_[A-Za-z_]*|libib|libibv|malloc_us|PINAL)-$' shown
}

@test "each case of SECURITY can be read in one piece, at any width" {
	local pages=("$top_srcdir/preload/pinalloc.7")
	cases() {
		local text
		text=$(tr -s ' \n' ' ' < shown)
		[[ $text == *" by default the key opens the whole memory region, "*" until ibv_dealloc_pd(3); "* ]]
		[[ $text == *" with PINALLOC_ACCESS=local the key opens the bytes that were asked for, "*" until ibv_dereg_mr(3); "* ]]
	}
	run -1 grep -l '^\.Bl -column' "$top_srcdir"/preload/pinalloc*.[137]
	shown cases
}

@test "examples are printed as they are written, and in characters that a shell knows" {
	local n=0
	examples() {
		local file
		written "$page" | split
		for file in examples/*; do
			[ -e "$file" ] || continue
			echo "${file#*/}:"
			diff "$file" <(found "$(wc -l < "$file")" shown < "$file")
			n=$((n + 1))
		done
	}
	run -1 grep -nE "^\.D[1l]" "${pages[@]}"
	# A formatter may print others for these, unless they are written as \-, \(aq, \(ha, \(ti, \(ga.
	run -1 awk '/^\.Bd -literal/ { on = 1; next } /^\.Ed/ { on = 0 }
		on && /(^|[^\\])-|[\047^~`]/ { print FILENAME ":" NR ": " $0; bad = 1 } END { exit !bad }' "${pages[@]}"
	shown examples
	[ "$n" -ge 70 ]
}

# launcher NAME: a stand-in for srun, mpirun or apptainer: it takes off options, sets the variables they
# name, and runs the rest as two ranks.
launcher() {
	cat > "bin/$1" <<- 'END'
		#!/bin/bash
		[ "${1:-}" != exec ] || shift
		while [[ ${1:-} == -* ]]; do
			case $1 in
			-x) export "$2"; shift 2 ;;
			-n | -N | -H | --bind) shift 2 ;;
			--export=ALL,*) export "${1#*,}"; shift ;;
			--*=*) shift ;;
			*) echo "usage: $1 is not an option" >&2; exit 2 ;;
			esac
		done
		[[ ${1:-} != *.sif ]] || shift
		type -P "$1" > /dev/null || { echo "$1: not found" >&2; exit 127; }
		for rank in 0 1; do
			OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=2 "$@" || status=$?
		done
		exit "${status:-0}"
	END
	chmod +x "bin/$1"
}

# shell FILE: runs an example as a user with an ./app, a job directory and the library would.
shell() {
	sed "s|/opt/pinalloc/lib/libpinalloc.so|$library|g" "$1" > pasted
	bash -n pasted
	run env PATH="$PWD/bin:$top_builddir:$top_srcdir/preload:$PATH" LD_LIBRARY_PATH="${library%/*}" SLURM_JOB_ID=7 \
		SLURM_PROCID=0 SLURM_JOBID=7 bash pasted
	sed 's/^/> /' pasted
	echo "$output"
	# What check finds is this machine's.
	[ "$status" -eq 0 ] || { [ "$status" -le 2 ] && grep -q 'pinalloc check' pasted; }
	run ! grep -E 'not found|cannot open|[Uu]sage:|not understood|unrecognized|syntax error' <<< "$output"
}

@test "every example that is a command runs" {
	local page file n=0
	mkdir bin job
	rows launcher <<< $'srun\nmpirun\napptainer\nsalloc'
	printf '#!/bin/sh\n' | tee bin/module > bin/pinalloc-acceptance
	printf '#!/bin/sh\ncat\n' > bin/flamegraph.pl
	chmod +x bin/*
	cp "$(type -P true)" app
	echo '{"syscalls": [{"names": ["mmap"], "action": "SCMP_ACT_ALLOW"}]}' > default.json
	for page in "${pages[@]}"; do
		written "$page" | split
		for file in examples/*; do
			[ -e "$file" ] || continue
			echo "$page:${file#*/}:"
			case $(head -n 1 "$file") in
			# files for other programs, C, and what the library says
			'*  '* | '['[A-Z]* | '# '* | [A-Z]*=* | 'struct '* | spec: | 'pinalloc['* | '#!'* | version* | void* | interface | import* | *.whl | *MiB' '*) ;;
			*)
				rm -rf job
				mkdir job
				for rank in 0 1; do
					preloaded PINALLOC_REPORT="job/$rank.json" PMI_RANK=$rank PMI_SIZE=2 ./app
				done
				shell "$file"
				n=$((n + 1))
				;;
			esac
		done
	done
	[ "$n" -ge 12 ]
}

# block FIRST: the example of pinalloc(3) whose first line begins so.
block() {
	written "$top_srcdir/preload/pinalloc.3" | awk -v first="$1" '/^example / { on = 0; next } on || index($0, first) == 1 { on = 1; print }'
}

@test "pinalloc(3)'s examples compile, and the one for Python runs" {
	printf '%s\n' '#include <infiniband/verbs.h>' '#include "preload/pinalloc.h"' \
		'struct ibv_mr *my_registration(struct ibv_pd *pd, void *buf, size_t len);' \
		'void *example(struct ibv_pd *pd, void *buf, size_t len, size_t n_bytes, struct ibv_sge sge);' \
		'void *example(struct ibv_pd *pd, void *buf, size_t len, size_t n_bytes, struct ibv_sge sge) {' > example.c
	block 'struct ' >> example.c
	printf '%s\n' '(void)sge; return block; }' 'void mark_phase(const char *name);' >> example.c
	block 'void mark_phase' >> example.c
	gcc -Wall -Wextra -Werror -I"$top_srcdir" -c example.c
	{ echo 'program example' && block interface && echo 'end program'; } > example.f90
	gfortran -Wall -Werror -fsyntax-only example.f90
	block import > example.py
	PYTHONPATH=$top_srcdir/preload/python preloaded PINALLOC_REPORT=example.json /usr/bin/python3 example.py
	[ "$(figure example.json '.phases[].name')" = solve ]
}

@test "pinalloc-admin(7)'s defaults are the same in a module file and in a task prolog, which leaves what the user has set" {
	local both=$'PINALLOC_REGISTER=lazy\nPINALLOC_REPORT=/scratch/reports/%h.%p.json'
	example '#!/bin/sh' > prolog
	chmod +x prolog
	[ "$(./prolog)" = "$(sed 's/^/export /' <<< "$both")" ]
	run -0 env PINALLOC_REGISTER=off ./prolog
	[ "$output" = 'export PINALLOC_REPORT=/scratch/reports/%h.%p.json' ]
	[ "$(example '# at the end of the module' | sed -n 's/^ *\(PINALLOC[A-Z_]*\)  *\(.*\)/\1=\2/p')" = "$both" ]
}

@test "pinalloc-admin(7)'s prolog gives the library to the tasks that ask for it, and to no other" {
	example 'library=/' > prolog
	grep -q WITH_PINALLOC prolog
	[ -z "$(WITH_PINALLOC='' bash prolog)" ]
	[[ "$(WITH_PINALLOC=1 bash prolog)" == "export LD_PRELOAD=/"*/libpinalloc.so ]]
}

@test "pinalloc-admin(7)'s change of a system call filter allows userfaultfd, and only that" {
	echo '{"syscalls": [{"names": ["mmap", "close_range"], "action": "SCMP_ACT_ALLOW"},
		{"names": ["swapon", "userfaultfd"], "action": "SCMP_ACT_ERRNO"}]}' > default.json
	example "jq 'del" | bash
	jq -e '.syscalls | map([.names, .action]) == [[["mmap", "close_range"], "SCMP_ACT_ALLOW"],
		[["swapon"], "SCMP_ACT_ERRNO"], [["userfaultfd"], "SCMP_ACT_ALLOW"]]' rdma.json
}

@test "the commands in the pages have the options they are given" {
	local page command n=0
	for page in "${pages[@]}"; do
		while read -r command; do
			echo "looking for: $command, of $page"
			"$top_builddir/pinalloc" $(cut -d' ' -f2 <<< "$command") --help |
				grep -qE -- "(^ +|, )--$(sed 's/.* --\([a-z]*\).*/\1/' <<< "$command")(=| |$)"
			n=$((n + 1))
		done < <(printed mandoc 200 "$page" | grep -oE 'pinalloc (check|run|report) --[a-z]+' |
			grep -v -- --help)
	done
	[ "$n" -ge 6 ]
}
