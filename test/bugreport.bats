#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: pinalloc-bugreport prints in one text what a help desk asks for, names the tools that are
# missing, and tells no secret.
load helper

setup() {
	cd "$BATS_TEST_TMPDIR"
	bugreport=$top_srcdir/preload/pinalloc-bugreport
	export PATH=$top_builddir:$PATH
}

# reports [NAME=VALUE…] [PROGRAM [FILE…]]: what it prints of these.
reports() {
	local variables=()
	while [[ ${1:-} == *=* ]]; do
		variables+=("$1")
		shift
	done
	run --separate-stderr env "${variables[@]}" "$bugreport" "$@"
	printf '%s\n' "$output" "$stderr"
	[ "$status" -eq 0 ]
}

# said COMMAND REGEX: the output of that command has such a line.
said() {
	awk -v command="\$ $1" '/^\$ / { on = index($0, command) == 1; next } on' <<< "$output" | grep -E "$2"
}

@test "it has versions, limits, what pinalloc check finds, and a program's libraries" {
	reports "$programs/grow"
	said 'pinalloc --version' "^$("$top_builddir/pinalloc" --version)$"
	said "pinalloc check $programs/grow" '^(ok  |warn|fail)  library: '
	said "pinalloc check $programs/grow" '^ok    program: '
	said 'uname -a' "$(uname -r)"
	said 'ucx_info -v' 'ersion.* 1\.'
	said 'ompi_info' '^Open MPI v'
	said mpichversion '^MPICH Version'
	said 'fi_info' '^libfabric: '
	said 'sh -c ulimit' '^nofiles|^open files'
	said grep '^/proc/meminfo:MemTotal: '
	said grep "^/proc/sys/vm/max_map_count:$(< /proc/sys/vm/max_map_count)$"
	said "ldd $programs/grow" 'libc\.so\.6'
}

@test "of the environment it has what matters to the library, and no key" {
	reports UCX_TLS=rc FI_PROVIDER=verbs PINALLOC_PREALLOC=$'4M\nxyzzy' OMPI_MCA_pml=ucx UCX_IB_PKEY=7 \
		HOME_SECRET=xyzzy AUCX_A=xyzzy FI_PSM2_UUID=xyzzy SLURM_JWT=xyzzy \
		OMPI_MCA_orte_precondition_transports=xyzzy
	local variable
	for variable in UCX_TLS=rc FI_PROVIDER=verbs OMPI_MCA_pml=ucx UCX_IB_PKEY=7 PINALLOC_PREALLOC=4M \
		'FI_PSM2_UUID=\(not shown\)' 'SLURM_JWT=\(not shown\)' \
		'OMPI_MCA_orte_precondition_transports=\(not shown\)'; do
		said env "^$variable\$"
	done
	run -1 said env 'xyzzy|HOME|^PATH='
}

@test "it has reports in words, and the end of other files" {
	preloaded PINALLOC_REPORT="$PWD/it.json" "$programs/grow" 1
	[ -e it.json ]
	seq 1000 > log
	reports "$programs/grow" it.json log
	said 'pinalloc report it.json' '^pinalloc: grow, '
	said 'tail -n 100 log' '^901$'
	[ "$(tail -n 1 <<< "$output")" = 1000 ]
	run -1 said 'tail -n 100 log' '^900$'
}

@test "a tool that is missing, fails or waits for ever does not keep it from the rest" {
	local tool
	mkdir bin
	for tool in sh bash env date uname dirname timeout head grep sed tail ldd nproc pinalloc; do
		ln -s "$(type -P $tool)" bin
	done
	printf '#!/bin/sh\nexit 3\n' > bin/fi_info
	printf '#!/bin/sh\nread line; echo "got $line"\n' > bin/ibv_devinfo
	chmod +x bin/*_*info
	run --separate-stderr env PATH="$PWD/bin" UCX_TLS=rc "$bugreport"
	printf '%s\n' "$output" "$stderr"
	[ "$status" -eq 0 ]
	[ "$stderr" = "pinalloc-bugreport: not there: ucx_info ompi_info mpichversion (load their modules, if there are any)" ]
	said 'ucx_info' '^not there$'
	said 'ibv_devinfo' '^got $'
	said env '^UCX_TLS=rc$'
}

@test "a wrong command line is refused" {
	run -64 --separate-stderr "$bugreport" --json
	[ -z "$output" ]
	[[ "$stderr" == 'usage: pinalloc-bugreport '* ]]
	run -0 "$bugreport" --help
}
