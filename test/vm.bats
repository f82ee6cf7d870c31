#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: a lab machine that does not boot is started again; the status is the command's, or a
# message says why there is none. A stand-in replaces the emulator.

setup() {
	load helper
	mkdir "$BATS_TEST_TMPDIR"/{bin,machine}
	PATH=$BATS_TEST_TMPDIR/bin:$PATH
}

# emulator: makes the stand-in from standard input.
emulator() {
	{
		printf '#!/bin/bash\ncd %q || exit\necho started >> ../starts\n' \
			"$BATS_TEST_TMPDIR/machine"
		cat
	} > "$BATS_TEST_TMPDIR/bin/qemu-system-$(uname -m)"
	chmod +x "$BATS_TEST_TMPDIR/bin/qemu-system-$(uname -m)"
}

machine() {
	run --separate-stderr "$top_srcdir/test/lab/vm" --dir "$BATS_TEST_TMPDIR/machine" "$@"
	echo "$stderr"
}

starts() {
	wc -l < "$BATS_TEST_TMPDIR/starts"
}

@test "a virtual machine that does not boot is started once more" {
	emulator <<- 'END'
		[ "$(wc -l < ../starts)" -gt 1 ] || exec sleep 100
		touch vm.ready
		echo 7 > vm.status
	END
	machine --timeout 5 -- true
	[ "$status" -eq 7 ]
	[ "$(starts)" -eq 2 ]
}

@test "if it does not boot then either, an error says so" {
	emulator <<< 'exec sleep 100'
	machine --timeout 3 -- true
	[ "$status" -eq 125 ]
	[[ "$stderr" == *"the machine's $((3 * ${TIMEOUT_SCALE:-1})) s were up while it booted"* ]]
	[ "$(starts)" -eq 2 ]
}

@test "one that has booted is not started again, whether it runs or ends" {
	emulator <<- 'END'
		touch vm.ready
		sleep 3
		echo 3 > vm.status
	END
	machine --timeout 5 -- true
	[ "$status" -eq 3 ]
	[ "$(starts)" -eq 1 ]
	rm "$BATS_TEST_TMPDIR"/machine/vm.*
	emulator <<< 'exit 1'
	machine --timeout 5 -- true
	[ "$status" -eq 125 ]
	[[ "$stderr" == *"the machine died while it booted (qemu: status 1)"* ]]
	[ "$(starts)" -eq 2 ]
}
