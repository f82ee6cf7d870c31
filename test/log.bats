#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: a line that the library writes on standard error neither ends a program nor stops it,
# whatever that is, and whoever reads it.
load helper

@test "lines at the start and inside malloc are written whole and once, and do no harm where nobody reads them" {
	for option in PINALLOC_PREALLOC=banana PINALLOC_HUGEPAGE=hugetlb; do
		run -0 --separate-stderr preloaded $option "$programs/grow" 100
		[ "${#stderr_lines[@]}" -eq 1 ]
		[[ "$stderr" =~ ^'pinalloc['[0-9]+']: ' ]]
		# A full pipe, and one without a reader; the program has the signals that it had.
		for first in 'os.write(w, bytes(65536))' 'os.close(r)'; do
			run -0 timeout $((60 * ${TIMEOUT_SCALE:-1})) python3 - "$library" $option "$programs/grow" <<- END
				import os, subprocess, sys
				r, w = os.pipe()
				$first
				subprocess.run(["env", "LD_PRELOAD=" + sys.argv[1], *sys.argv[2:], "100"], stderr=w, check=True)
			END
			[ -z "$output" ]
		done
	done
}
