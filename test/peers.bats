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

@test "a difference with a known reason is listed with it, and is no failure" {
	run -0 peers fake
	[[ "$output" == *"fake: explained1: ok without, status-1 with: it is so"* ]]
	[[ "${lines[-1]}" == "fake: 2 ran, 1 same (1 ok), 0 by chance, 1 differ (explained), 0 UNEXPLAINED, "* ]]
}

@test "a difference without a known reason is a failure" {
	suite '[ -z "${LD_PRELOAD:-}" ]' same explained1 other
	run -1 peers fake
	[[ "$output" == *"fake: other: ok without, status-1 with: UNEXPLAINED"* ]]
	[[ "${lines[-1]}" == "fake: 3 ran, 1 same (1 ok), 0 by chance, 1 differ (explained), 1 UNEXPLAINED, "* ]]
}

@test "a reason only covers the outcomes it names" {
	suite '[ -z "${LD_PRELOAD:-}" ] || exit 3' explained1
	run -1 peers fake
	[[ "$output" == *"fake: explained1: ok without, status-3 with: UNEXPLAINED"* ]]
}

@test "a test that fails without the library too is no difference" {
	suite 'exit 4' other
	run -0 peers fake
	[[ "${lines[-1]}" == "fake: 1 ran, 1 same (0 ok), 0 by chance, 0 differ (explained), 0 UNEXPLAINED, "* ]]
}

@test "a difference that disappears on a second run is reported as chance" {
	suite "[ -z \"\${LD_PRELOAD:-}\" ] || ! mkdir $BATS_TEST_TMPDIR/once" other
	run -0 peers fake
	[[ "$output" == *"fake: other was ok without and status-1 with, but not when it ran again"* ]]
	[[ "${lines[-1]}" == "fake: 1 ran, 0 same (0 ok), 1 by chance, 0 differ (explained), 0 UNEXPLAINED, "* ]]
}

@test "a test is skipped only if known says so" {
	printf '%s\n' 'fake explained* * * any' 'fake left skip - no use' > "$peers/known"
	suite : same left explained1
	run -0 peers fake
	[[ "${lines[-1]}" == "fake: 2 ran, 2 same (2 ok), "* ]]
}

@test "death by a signal and a timeout are outcomes of their own" {
	suite '[ -z "${LD_PRELOAD:-}" ] || kill -SEGV $$' other
	run -1 peers fake
	[[ "$output" == *"fake: other: ok without, signal-11 with: UNEXPLAINED"* ]]
	suite '[ -z "${LD_PRELOAD:-}" ] || sleep 30' other
	echo 'limit=1' >> "$peers/fake.suite"
	run -1 peers fake
	[[ "$output" == *"fake: other: ok without, time with: UNEXPLAINED"* ]]
}

@test "every suite is listed, distributed and described, and every line of known names a suite" {
	local name
	grep -qE '\stest/peers( |$)' "$top_srcdir/Makefile.am"
	for name in "$top_srcdir"/test/peers/*.suite; do
		name=$(basename "$name" .suite)
		"$top_srcdir/test/peers/run" --list | grep -qE "^$name +[^ ].*"
		grep -q "^    $name: [0-9]* ran, .* 0 UNEXPLAINED" "$top_srcdir/bench/RESULTS"
	done
	while read -r name test without with reason; do
		[ -e "$top_srcdir/test/peers/$name.suite" ]
		[ -n "$reason" ]
	done < <(grep -v '^#' "$top_srcdir/test/peers/known")
}

@test "a wrong command line is explained" {
	run -2 peers --ony x
	[[ "$output" == "test/peers: unknown option --ony (--help lists the options)" ]]
	run -2 peers fame
	[[ "$output" == "test/peers: unknown suite fame (--list has them)" ]]
	run -1 peers --only 'x*' fake
	[[ "$output" == *"test/peers: fake has no such test"* ]]
}
