#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: real programs behave under the library as without it. (test/peers/run programs tries larger ones.)

setup() {
	load helper
	cd "$BATS_TEST_TMPDIR"
	mkdir reports
}

# alike COMMAND…: prints the same on both streams, with the same status, with the library and without.
alike() {
	local plain status_plain=0
	rm -f reports/*
	plain=$("$@" 2>&1) || status_plain=$?
	run preloaded PINALLOC_REPORT="$PWD/reports/%p.txt" "$@"
	diff <(echo "$plain") <(echo "$output") && [ "$status" -eq "$status_plain" ]
}

# same NAME COMMAND…: is alike; and a program NAME did run with the library.
same() {
	alike "${@:2}" && grep -q "^pinalloc: $1, " reports/*.txt
}

# script NAME: makes a script of standard input.
script() {
	cat > "$1"
}

@test "a shell script with pipes, subshells, arrays and here-documents works as without the library" {
	same bash bash "$top_srcdir/test/programs/faulted.sh"
}

@test "python3 with threads, ctypes, a child and libraries works as without the library" {
	same python3 python3 "$top_srcdir/test/programs/faulted.py"
	PYTHONMALLOC=malloc same python3 python3 "$top_srcdir/test/programs/faulted.py"
}

@test "python3 with subprocesses and both kinds of multiprocessing works as without the library" {
	script processes.py <<- 'END'
		import multiprocessing, subprocess
		def square(n): return sum(i * i for i in range(n))
		if __name__ == "__main__":
		    for method in "fork", "spawn":
		        with multiprocessing.get_context(method).Pool(2) as pool:
		            print(method, pool.map(square, range(50)))
		    print(subprocess.run(["sort", "-r"], input=b"a\nc\nb\n", capture_output=True))
	END
	same python3 python3 processes.py
}

@test "tar, xz, sed, awk, grep and sort work in pipelines as without the library" {
	script pipeline <<- 'END'
		mkdir -p tree && seq 100000 > tree/numbers && cp /etc/services tree/ 2>&1
		tar --sort=name --mtime=@0 -c tree | xz -0 -T2 | xz -dc | md5sum
		sort -R --random-source=tree/numbers tree/numbers | sort -n --parallel=4 -S 8M |
			sed 's/7/seven/g' | awk '{ sum += length($0); n[length($0)]++ }
				END { print sum; for (i = 1; i < 20; i++) print i, n[i] }'
		find tree -type f | sort | xargs md5sum
		grep -c '[13579]$' tree/numbers
	END
	same sort bash pipeline
}

# grown_by COUNT…: how much of the heap was touched after so many forks while another thread allocates; every
# child has allocated, and ended. Threads that wait for each other get maps, of some hundred KiB each.
grown_by() {
	local n
	grown=()
	for n; do
		run -0 preloaded PINALLOC_REPORT="$PWD/%p.json" "$programs/forks" "$n"
		[ "$output" = "$n" ]
		grown+=("$(jq .resident.heap_bytes "$PWD"/*.json)")
		rm "$PWD"/*.json
	done
	echo "touched ${grown[*]}"
	[ "${grown[1]}" -le $((grown[0] + (4 << 20))) ]
}

@test "after thousands of forks the heap has not gone on growing" {
	grown_by 100 2000
}
