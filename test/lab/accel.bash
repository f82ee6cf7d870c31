# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # what vm reads, and has set
#
# Whether the processor's own virtualisation (KVM) runs a lab machine or it is emulated (TCG), read
# by vm. LAB_ACCEL says which; auto, unless it is set, takes KVM where that is known to work:
# /dev/kvm can be opened for reading and writing, an x86 processor has vmx or svm (an arm64 host
# offers /dev/kvm only where its kernel can use it), and the lab's kernel boots in a few seconds.
# That is tried once for a kernel, a qemu and a boot of the host; what came of it is beside the
# kernel, in the file kvm-trial.
#
# The trial is there because the rest may lie: KVM_PVM, of some cloud machines, opens and makes
# machines without vmx or svm, and no stock kernel gets as far as its initramfs in them. Tried
# there, and of no use: patched guest kernels (out of tree); user-mode Linux (no InfiniBand, no
# write protection by userfaultfd); savevm instead of booting (not with 9p mounted); -smp 4 (the
# emulated processors are threads of the host's few).

# Seconds; where there is KVM it takes one or two.
trial_seconds=8

# Why KVM is out of the question, or nothing. Opened for both, a file that is missing is created.
kvm_obstacle()
{
	if [ ! -e /dev/kvm ]; then
		echo "there is no /dev/kvm"
	elif ! true 2>/dev/null <>/dev/kvm; then
		echo "/dev/kvm cannot be opened for reading and writing (is this user in its group?)"
	elif [ "$processor" = x86_64 ] && ! grep -qwE 'vmx|svm' /proc/cpuinfo; then
		echo "/proc/cpuinfo has neither vmx nor svm"
	fi
}

# What is against it once the lab's kernel was booted with it, or nothing. In the initramfs the
# word "trial" on the kernel's command line is answered with "boots".
kvm_trial()
{
	local accel=kvm arguments ports kernel_options dir said status=0
	local seconds=$((trial_seconds * scale))

	ulimit -c 0
	dir=$(mktemp -d "${TMPDIR:-/tmp}/pinalloc-trial.XXXXXX") || return
	machine_arguments
	said=$(timeout --kill-after=1 "$seconds" "qemu-system-$processor" "${arguments[@]}" \
		-m 512M -nic none -append "$ports $kernel_options trial=1" </dev/null 2>&1) || status=$?
	rm -rf "$dir"
	! grep -qx boots <<<"$said" || return 0
	if [ $status -eq 124 ]; then
		echo "a trial boot did not end within $seconds s"
	else
		echo "a trial boot failed (qemu: status $status${said:+, ${said##*$'\n'}})"
	fi
}

# The same, remembered. A refusal is not, where KVM is asked for by name.
kvm_verdict()
{
	local record=${kernel%/*}/kvm-trial tried known='' verdict='' lock

	tried="$(</proc/sys/kernel/random/boot_id) $(stat -Lc %i-%Y "$kernel" "$initrd" \
		"$(command -v "qemu-system-$processor")" | paste -sd ' ')"
	# So that machines that start at the same time make one trial.
	exec {lock}<"${kernel%/*}"
	flock "$lock"
	{
		read -r known
		read -r verdict
	} 2>/dev/null <"$record" || true
	if [ "$known" != "$tried" ] || [[ $LAB_ACCEL == kvm && $verdict != "it boots" ]]; then
		verdict=$(kvm_trial)
		verdict=${verdict:-it boots}
		printf '%s\n' "$tried" "$verdict" 2>/dev/null >"$record" || true
	fi
	exec {lock}<&-
	echo "$verdict"
}

# Sets accel, and accel_reason for whoever asks.
choose_accel()
{
	accel=tcg
	if [ "$LAB_ACCEL" = tcg ]; then
		accel_reason="LAB_ACCEL says so"
		return
	fi
	accel_reason=$(kvm_obstacle)
	accel_reason=${accel_reason:-$(kvm_verdict)}
	if [ "$accel_reason" = "it boots" ]; then
		accel=kvm
	elif [ "$LAB_ACCEL" = kvm ]; then
		die "LAB_ACCEL=kvm: $accel_reason" 125
	fi
}
