#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: the lab's machine is started again if it does not come up, and gives the status of
# the command, or says why there is none. In place of the emulator, what stands in for it.

setup() {
	load helper
	mkdir "$BATS_TEST_TMPDIR"/{bin,machine}
	PATH=$BATS_TEST_TMPDIR/bin:$PATH
}

# emulator: what it does is read.
emulator() {
	{
		printf '#!/bin/bash\ncd %q || exit\necho started >> ../starts\n' \
			"$BATS_TEST_TMPDIR/machine"
		cat
	} > "$BATS_TEST_TMPDIR/bin/qemu-system-x86_64"
	chmod +x "$BATS_TEST_TMPDIR/bin/qemu-system-x86_64"
}

machine() {
	run --separate-stderr "$top_srcdir/test/lab/vm" --dir "$BATS_TEST_TMPDIR/machine" "$@"
	echo "$stderr"
}

starts() {
	wc -l < "$BATS_TEST_TMPDIR/starts"
}

@test "a machine that does not come up is started once more" {
	emulator <<- 'END'
		[ "$(wc -l < ../starts)" -gt 1 ] || exec sleep 100
		touch vm.ready
		echo 7 > vm.status
	END
	machine --timeout 5 -- true
	[ "$status" -eq 7 ]
	[ "$(starts)" -eq 2 ]
}

@test "if that does not come up either, it is said" {
	emulator <<< 'exec sleep 100'
	machine --timeout 3 -- true
	[ "$status" -eq 125 ]
	[[ "$stderr" == *"the machine's 3 s were up while it booted"* ]]
	[ "$(starts)" -eq 2 ]
}

@test "one that is up is not started again, nor one that ends" {
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
