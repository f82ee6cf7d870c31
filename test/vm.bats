#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: a lab machine that does not boot is started again; the status is the command's, or a
# message says why there is none; and KVM is taken where it works. A stand-in replaces the emulator.
load helper

setup() {
	mkdir "$BATS_TEST_TMPDIR"/{bin,machine}
	PATH=$BATS_TEST_TMPDIR/bin:$PATH
	export LAB_ACCEL=tcg
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

# ended STATUS STARTS SECONDS: a machine that may be up for so long ends so, after so many starts.
ended() {
	machine --timeout "$3" -- true
	[ "$status" -eq "$1" ]
	[ "$(wc -l < "$BATS_TEST_TMPDIR/starts")" -eq "$2" ]
}

@test "a virtual machine that does not boot, or whose clock is not the host's, is started once more" {
	local fault
	for fault in true 'touch vm.clock'; do
		rm -f "$BATS_TEST_TMPDIR"/starts "$BATS_TEST_TMPDIR"/machine/vm.*
		emulator <<- END
			[ "\$(wc -l < ../starts)" -gt 1 ] || { $fault && exec sleep 100; }
			touch vm.ready
			echo 7 > vm.status
		END
		ended 7 2 5
	done
}

@test "if it does not boot then either, an error says so" {
	emulator <<< 'exec sleep 100'
	ended 125 2 3
	[[ "$stderr" == *"the machine's $((3 * ${TIMEOUT_SCALE:-1})) s were up while it booted (TIMEOUT_SCALE=2 doubles them)"* ]]
}

@test "one that has booted is not started again, whether it runs or ends" {
	emulator <<- 'END'
		touch vm.ready
		sleep 3
		echo 3 > vm.status
	END
	ended 3 1 5
	rm "$BATS_TEST_TMPDIR"/machine/vm.*
	emulator <<< 'exit 1'
	ended 125 2 5
	[[ "$stderr" == *"the machine died while it booted (qemu: status 1)"* ]]
}

# --- with KVM, or without ---

# host_offers [FLAG]: a host of this kind of processor that has these flags, and /dev/kvm; its own
# kernel for the lab is none.
host_offers() {
	local files
	unset LAB_ACCEL
	export LAB_HOST_ROOT=$BATS_TEST_TMPDIR/host LAB_DIR=$BATS_TEST_TMPDIR/lab
	mapfile -t files < <(env -u LAB_DIR "$top_srcdir/test/lab/setup")
	mkdir -p "$LAB_HOST_ROOT"/{dev,proc/sys/kernel/random} "$LAB_DIR/kernel/lib/modules"
	touch "$LAB_HOST_ROOT/dev/kvm" "$LAB_DIR"/kernel/{vmlinux,"${files[1]##*/}"}
	echo 'a boot' > "$LAB_HOST_ROOT/proc/sys/kernel/random/boot_id"
	echo "flags		: fpu sse2 ${1:-} lm" > "$LAB_HOST_ROOT/proc/cpuinfo"
}

# trial_that COMMAND: the emulator does that when it is to boot the trial; other machines boot.
trial_that() {
	emulator <<- END
		if [[ "\$*" == *trial=1* ]]; then
			echo >> ../trials
			$1
		fi
		printf '%s\n' "\$@" > ../arguments
		touch console.log vm.ready
		echo 0 > vm.status
	END
	touch "$BATS_TEST_TMPDIR/trials"
}

trials() {
	wc -l < "$BATS_TEST_TMPDIR/trials"
}

# takes ACCELERATOR REASON: a machine is started so, and says so.
takes() {
	machine -v -- true
	[ "$status" -eq 0 ]
	grep -A 1 -x -e -accel "$BATS_TEST_TMPDIR/arguments" | grep -x "$1.*"
	[[ "$stderr" == "lab/vm: $1: $2"* ]]
}

# refuses REASON: KVM that is demanded ends in one line.
refuses() {
	LAB_ACCEL=kvm machine -- true
	[ "$status" -eq 125 ]
	[ "$stderr" = "lab/vm: LAB_ACCEL=kvm: $1" ]
}

@test "KVM is taken where a trial boot succeeds, which is made once for a boot of the host" {
	host_offers svm
	trial_that 'echo boots; exit'
	takes kvm 'it boots'
	takes kvm 'it boots'
	[ "$(trials)" -eq 1 ]
	echo 'the next' > "$LAB_HOST_ROOT/proc/sys/kernel/random/boot_id"
	takes kvm 'it boots'
	[ "$(trials)" -eq 2 ]
}

@test "two machines that start at the same time make one trial" {
	host_offers vmx
	trial_that 'sleep 1; echo boots; exit'
	mkdir "$BATS_TEST_TMPDIR/another"
	"$top_srcdir/test/lab/vm" --dir "$BATS_TEST_TMPDIR/another" -- true > "$BATS_TEST_TMPDIR/another/log" 2>&1 3>&- &
	takes kvm 'it boots'
	wait $! || :
	[ "$(trials)" -eq 1 ]
}

@test "a machine is emulated where the trial fails, or does not end" {
	host_offers svm
	trial_that 'echo cannot >&2; exit 3'
	takes tcg 'a trial boot failed (qemu: status 3, cannot)'
	takes tcg 'a trial boot failed (qemu: status 3, cannot)'
	[ "$(trials)" -eq 1 ]
	rm "$LAB_DIR/kernel/kvm-trial"
	trial_that 'exec sleep 100'
	TIMEOUT_SCALE=1 takes tcg 'a trial boot did not end within 8 s'
	# By name it is tried anew.
	TIMEOUT_SCALE=1 refuses 'a trial boot did not end within 8 s'
	trial_that 'echo boots; exit'
	LAB_ACCEL=kvm takes kvm 'it boots'
}

# Of arm64 processors nothing is asked: their kernel has /dev/kvm if it works.
@test "there is no trial where KVM cannot be, or is not wanted, and no /dev/kvm is left behind" {
	trial_that 'echo boots; exit'
	if [ "$(uname -m)" = x86_64 ]; then
		host_offers
		takes tcg '/proc/cpuinfo has neither vmx nor svm'
		refuses '/proc/cpuinfo has neither vmx nor svm'
	fi
	host_offers svm
	rm "$LAB_HOST_ROOT/dev/kvm"
	takes tcg 'there is no /dev/kvm'
	refuses 'there is no /dev/kvm'
	[ ! -e "$LAB_HOST_ROOT/dev/kvm" ]
	mkdir "$LAB_HOST_ROOT/dev/kvm"
	takes tcg '/dev/kvm cannot be opened'
	refuses '/dev/kvm cannot be opened for reading and writing (is this user in its group?)'
	LAB_ACCEL=tcg takes tcg 'LAB_ACCEL says so'
	LAB_ACCEL=fast machine -v -- true
	[ "$status" -eq 2 ]
	[ "$stderr" = 'lab/vm: LAB_ACCEL=fast is none of auto, kvm, tcg' ]
	[ "$(trials)" -eq 0 ]
}
