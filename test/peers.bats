#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# test/peers/run distinguishes results that differ with the library from those that do not, and
# explained differences from unexplained ones, and misses none. The suites themselves are not run
# here.

setup() {
	load helper
	peers=$BATS_TEST_TMPDIR/tree/test/peers
	mkdir -p "$peers"
	cp "$top_srcdir"/test/peers/{run,peers.bash} "$peers"
	ln -s "$top_srcdir/test/install-packages" "$BATS_TEST_TMPDIR/tree/test"
	echo 'fake explained[12] ok status-1 it is so' > "$peers/known"
	suite '[ -z "${LD_PRELOAD:-}" ]' same explained1
}

# suite BODY TEST…: makes a suite in which each test runs the body, with the test's name.
suite() {
	local body=$1
	shift
	printf '%s\n' "# SPDX" "# a fake" "prepare() { :; }" "tests() { printf '%s\n' $*; }" \
		"check() { $body; }" "export -f check" \
		"try() { case \$1 in same*) :;; *) under bash -c 'check \"\$1\"' - \"\$1\";; esac; }" > "$peers/fake.suite"
}

peers() {
	"$peers/run" --library "$library" "$@"
}

@test "a difference with a known reason is listed with it, and is no failure; without one it is a failure" {
	run -0 peers fake
	[[ "$output" == *"fake: explained1: ok without, status-1 with: it is so"* ]]
	[[ "${lines[-1]}" == "fake: 2 ran, 1 same (1 ok), 0 by chance, 1 differ (explained), 0 UNEXPLAINED, "* ]]
	suite '[ -z "${LD_PRELOAD:-}" ]' same explained1 other
	run -1 peers fake
	[[ "$output" == *"fake: other: ok without, status-1 with: UNEXPLAINED"* ]]
	[[ "${lines[-1]}" == "fake: 3 ran, 1 same (1 ok), 0 by chance, 1 differ (explained), 1 UNEXPLAINED, "* ]]
}

@test "a difference that disappears on a second run is reported as chance" {
	suite "[ -z \"\${LD_PRELOAD:-}\" ] || ! mkdir $BATS_TEST_TMPDIR/once" other
	run -0 peers fake
	[[ "$output" == *"fake: other was ok without and status-1 with, but not when it ran again"* ]]
	[[ "${lines[-1]}" == "fake: 1 ran, 0 same (0 ok), 1 by chance, 0 differ (explained), 0 UNEXPLAINED, "* ]]
}

@test "a wrong command line is explained" {
	run -2 peers --ony x
	[[ "$output" == "test/peers: "*--ony* ]]
	run -2 peers fame
	[[ "$output" == "test/peers: "*fame* ]]
	run -1 peers --only 'x*' fake
	[[ "$output" == *"test/peers: fake "* ]]
	"$top_srcdir/test/peers/run" --list | grep .
}
