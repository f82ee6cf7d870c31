#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: what pinalloc.h says of pools. Slices have keys, and nothing is registered for them; others
# who register are told in time; memory goes back to the heap; what is wrong is refused by name.
load helper
load scripts

setup_file() {
	allowed memlock
}

# works CASE [NAME=VALUE]: of the scripts, or of those with a callback.
works() {
	local command=("$programs/rdma-script" "${script[$1]:-}")
	[ -n "${script[$1]:-}" ] || command=("$programs/rdma-pool")
	succeeds "${@:2}" "${command[@]}"
	[ "$stderr" = '' ]
}

@test "each case of what works" {
	rows works <<- 'END'
		slices: slices have keys in each enabled domain, and nothing is registered for them
		slices PINALLOC_REGISTER=lazy: nor with requests only
		slices PINALLOC_HUGEPAGE=off: nor with small pages
		back: the heap gets the memory of a pool that is destroyed, and another pool does
		pool-threads: threads that touch are gone when a pool is made; others may use it all at once
		forked: in a child slices are memory, and the functions fail by name, whatever threads did
		callbacks: on_segment may allocate, register, look up and make pools; pools do not grow from there
	END
}

@test "errors are named, and the first of misuse has a line" {
	succeeds "$programs/rdma-script" "${script[errors]}"
	[ "$(wc -l <<< "$stderr")" -eq 1 ]
	grep 'pinalloc_pool_free: 0x[0-9a-f]* is no slice of this pool that is in use' <<< "$stderr"
}

@test "a pool has pages of 1 GiB; where there are none, one line says so, and others do" {
	local unused
	unused=$(cat /sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages || echo 0)
	succeeds "$programs/rdma-script" "${script[gigantic]}"
	if [ "$unused" -eq 0 ]; then
		[ "$(wc -l <<< "$stderr")" -eq 1 ]
		grep 'not enough free pages of 1 GiB for a pool of 1.0 GiB' <<< "$stderr"
	else
		[ "$stderr" = '' ]
	fi
}

@test "Python has figures, keys, reports, and pools, to which views and arrays go back with the last that refers to them" {
	# Debian's, which has Debian's NumPy.
	run -0 --separate-stderr adapted LD_PRELOAD="$library" PYTHONPATH="$top_srcdir/preload/python" \
		PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -W error "$top_srcdir/test/programs/pool.py"
	echo "$output $stderr"
	[ "$output" = 'as documented' ]
	[ "$stderr" = '' ]
}

@test "without the library the Python package says what is not there, where, and what to do" {
	local call
	for call in 'stats()' 'mark()' 'report()' 'lookup(1, 1, 1)' 'Pool(1)'; do
		run -1 env PYTHONPATH="$top_srcdir/preload/python" PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -c \
			"import pinalloc; assert not pinalloc.is_loaded(); pinalloc.$call"
		[[ "${lines[-1]}" == "pinalloc.NotLoaded: libpinalloc.so is not loaded in process "*"python3 -m pinalloc run"* ]]
	done
	PYTHONPATH=$top_srcdir/preload/python run -1 /usr/bin/python3 -B -m pinalloc run true
	[ "$output" = "python3 -m pinalloc: not installed by pip or make install: there is no $(realpath "$top_srcdir")/bin/pinalloc" ]
}
