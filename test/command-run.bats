#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: `pinalloc run` is a command line for the environment variables. Mistakes are reported in
# one line before the program runs.
load helper
load job

@test "a program runs under the library, or a line says why it does not" {
	transcript run
}

@test "every row of options.def is a command line option that sets its variable" {
	local flag name names help
	names=$(sed -n 's/^OPTION(.*, "\([A-Z_]*\)", .*/\1/p' "$top_srcdir/allocator/options.def")
	[ "$(wc -w <<< "$names")" -eq \
		"$(grep -c '^OPTION(' "$top_srcdir/allocator/options.def")" ]
	run -0 "$pinalloc" run --help
	help=$(PINALLOC_HELP=1 preloaded true)
	for name in $names; do
		flag=$(sed 's/^PINALLOC_//; s/^MALLOC_//; s/_*$//' <<< "$name" | tr A-Z_ a-z-)
		echo "$name: --$flag"
		grep -qE -- "^ +--$flag=VALUE " <<< "$output"
		value=$(sed -n "s/^$name .*(\(.*\))$/\1/p" <<< "$help")
		[ "$("$pinalloc" run "--$flag=$value" printenv "$name")" = "$value" ]
	done
}

@test "--help has the same sentence for each option as PINALLOC_HELP" {
	run -0 "$pinalloc" run --help
	[[ "$output" == "Usage: pinalloc run "* ]]
	local help sentence
	help=$(tr -s ' \n' ' ' <<< "$output")
	PINALLOC_HELP=1 preloaded true | sed -E 's/^[PM][A-Z_]+ +//; s/^ +//; s/ +$//' | paste -d : - - > rows
	[ "$(wc -l < rows)" -ge 13 ]
	while read -r sentence; do
		echo "$sentence"
		[[ "$help" == *"${sentence/):/): }"* ]]
	done < rows
}

@test "a truncated or damaged executable does no harm" {
	local size
	cp "$programs/ownmalloc" whole
	for size in 1 4 20 63 64 100 700 2000 5000 12000 $(($(stat -c %s whole) - 100)); do
		head -c "$size" whole > cut
		chmod +x cut
		run --separate-stderr "$pinalloc" check ./cut
		[ "$status" -le 2 ]
		[ -z "$stderr" ]
	done
	python3 - <<- 'END'
		import random, subprocess, sys, os
		random.seed(1)
		whole = open("whole", "rb").read()
		for i in range(30):
		    data = bytearray(whole)
		    for _ in range(8):
		        data[random.choice((random.randrange(64), random.randrange(900),
		                            random.randrange(len(data) - 2500, len(data))))] = random.randrange(256)
		    open("damaged", "wb").write(data)
		    os.chmod("damaged", 0o755)
		    status = subprocess.run([os.environ["top_builddir"] + "/pinalloc", "check",
		                             "./damaged"], capture_output=True, timeout=20).returncode
		    assert 0 <= status <= 2, (i, status)
	END
}
