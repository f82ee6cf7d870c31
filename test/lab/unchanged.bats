#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The promise: for a program that uses verbs nothing changes except speed. The same programs are run
# without the library wherever possible. A key has exactly the requested rights. With PINALLOC_ACCESS=local a
# remote key gives access to exactly the requested range, and to nothing after ibv_dereg_mr; without it,
# pinalloc(7) describes the limits.
# Only here: each mix of verbs that are linked and found, the rights that an adapter grants, and a hundred
# thousand registrations.

load lab

setup_file() {
	load ../scripts
	guest_variables=(script)
	boot many exact may
}

in_guest() {
	local case program=$programs/rdma-script

	for case in answer iova relaxed rights overlap foreign copies threads window mixes old found-closed found around; do
		attempt "plain-$case" "$program" "${script[$case]}"
	done
	attempt plain-many "$program" "$(many 10000)"
	for case in answer iova relaxed twice overlap foreign copies threads window mixes old found-closed found region; do
		shimmed "$case" "$program" "${script[$case]}"
	done
	shimmed many "$program" "$(many 100000)"
	shimmed rights PINALLOC_ACCESS=local "$program" "${script[rights]}"
	attempt plain-rereg "$program" print "${script[rereg]}"
	shimmed rereg "$program" print "${script[rereg]}"
	attempt pairs strace -o /ctl/pairs.trace -E LD_PRELOAD="$library" "$program" "${script[pairs]}"
	attempt plain-exact "$program" "$(exact)"
	shimmed exact "$program" "$(exact)"
	shimmed exact-lazy PINALLOC_REGISTER=lazy "$program" "$(exact)"
	shimmed around PINALLOC_ACCESS=local "$program" "${script[around]}"
	shimmed exact-local PINALLOC_ACCESS=local "$program" "$(exact)"
}

@test "an ibv_mr of heap memory has the requested address and length, and its keys work" {
	ended plain-answer
	holds answer '.registration.served == 3' '.registration.passed_through == 0'
}

@test "a request with another device address goes to libibverbs and works" {
	ended plain-iova
	holds iova '.registration.served == 0'
	[ "$(reported iova '.registration.passed_through_reasons["device address differs, or empty"]')" -eq 2 ]
}

@test "relaxed ordering has memory regions of its own" {
	ended plain-relaxed
	holds relaxed '.registration.served == 3' '.registration.mr_created >= 2'
}

@test "a request for rights beyond PINALLOC_ACCESS goes to libibverbs and works" {
	ended plain-rights
	holds rights '.registration.served == 1'
	[ "$(reported rights '.registration.passed_through_reasons["rights beyond PINALLOC_ACCESS"]')" -eq 1 ]
}

@test "deregistering twice is refused" {
	ended twice
	grep -q 'not registered any more' "$results/twice.err"
}

@test "100000 registrations can exist at once, and end in any order" {
	ended plain-many # a tenth as many, to save time
	holds many '.registration.served == 100001'
	[ "$(reported many .registration.mr_created)" -le \
		$((4 * ($(reported many .memory.mapped_bytes) / 2097152 + 1))) ]
	[ "$(reported many .memory.pinned_bytes)" -eq 0 ]
}

@test "ending one of two overlapping registrations leaves the other" {
	local case
	for case in overlap foreign; do
		ended plain-$case
		ended $case
	done
	holds overlap '.registration.served == 6' '.registration.passed_through == 0'
	holds foreign '.registration.served == 2' '.registration.passed_through_reasons["not heap memory"] == 4'
}

@test "copies of keys and structures are valid while they are registered" {
	ended plain-copies
	holds copies '.registration.served == 2002' '.registration.passed_through == 0'
}

@test "threads register and deregister in two protection domains" {
	ended plain-threads
	holds threads '.registration.served == 16000'
	# In each domain one for the pages of a block, until the registration thread has a cell there.
	holds threads '.registration.mr_created <= 1000' '.memory.pinned_bytes == 0'
}

@test "ibv_rereg_mr answers as the device does, which cannot" {
	ended plain-rereg
	ended rereg
	diff "$results/plain-rereg.out" "$results/rereg.out"
}

@test "memory windows can be bound to the heap" {
	ended plain-window
	holds window '.registration.served == 1'
	[ "$(reported window '.registration.passed_through_reasons["rights beyond PINALLOC_ACCESS"]')" -eq 1 ]
}

@test "a program that finds the verbs with dlvsym works, with its own registrations" {
	ended plain-found
	holds found '.registration.served == 0' '.registration.mr_created == 0'
}

# mixed CASE: right with the library and without, and everything was deregistered.
mixed() {
	ended "plain-$1"
	ended "$1"
	[ ! -s "$results/$1.err" ]
	holds "$1" '.registration.mr_created > 0' '.registration | .mr_destroyed == .mr_created' \
		'.memory.pinned_bytes == 0'
}

@test "every mix of linked verbs and verbs found with dlsym works" {
	mixed mixes
	# In each domain allocated by the linked function; ibv_rereg_mr() is the adapter's.
	[ "$(reported mixes .registration.served)" -eq $((128 * 3)) ]
}

@test "the verbs of the first ABI, found with dlvsym, work beside linked ones" {
	mixed old
}

@test "closing a device with a function found by dlsym ends everything on it" {
	mixed found-closed
}

# between CASE: the system calls made by the 1000 pairs.
between() {
	awk '/^write\(-1, "end"/ { begun = 0 } begun { n++ } /^write\(-1, "begin"/ { begun = 1; pairs += 2 }
		END { print pairs == 1000 ? n + 0 : "none" }' "$results/$1.trace"
}

@test "registering and deregistering a heap buffer makes no system call" {
	ended pairs
	[ "$(between pairs)" -eq 0 ]
}

# --- rights ---

# passed NAME: the number of requests that went to libibverbs because of their rights.
passed() {
	reported "$1" '.registration.passed_through_reasons["rights beyond PINALLOC_ACCESS"] // 0'
}

@test "the keys of an access set have exactly its rights" {
	ended plain-exact
	ended exact
	ended exact-lazy
	holds exact '.registration.served == 10' '(.registration | .mr_created - .mr_ahead) == 10' \
		'.registration.passed_through_reasons["remote writing without local"] == 1'
}

@test "a key gives access to its whole memory region until detach, with its rights only" {
	ended region
}

@test "with PINALLOC_ACCESS=local a peer reaches only its buffer, and nothing after ibv_dereg_mr" {
	ended plain-around
	ended around
	[ "$(passed around)" -eq 3 ]
	[ "$(reported around .registration.served)" -eq 1 ]
	ended exact-local
	[ "$(passed exact-local)" -eq 9 ]
	[ "$(reported exact-local .registration.served)" -eq 2 ]
}
