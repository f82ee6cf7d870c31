#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# The command for other people's tests tells what differs with the library from what does not,
# what is explained from what is not, and misses nothing. The suites themselves are not run.

setup() {
	load helper
	peers=$BATS_TEST_TMPDIR/tree/test/peers
	mkdir -p "$peers"
	cp "$top_srcdir"/test/peers/{run,peers.bash} "$peers"
	ln -s "$top_srcdir/test/install-packages" "$BATS_TEST_TMPDIR/tree/test"
	echo 'fake explained[12] ok status-1 it is so' > "$peers/known"
	suite '[ -z "${LD_PRELOAD:-}" ]' same explained1
}

# suite BODY TEST…: of which each is the body, told the test's name.
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

@test "a difference with a reason is listed with it, and is no failure" {
	run -0 peers fake
	[[ "$output" == *"fake: explained1: ok without, status-1 with: it is so"* ]]
	[[ "${lines[-1]}" == "fake: 2 ran, 1 same (1 ok), 0 by chance, 1 differ (explained), 0 UNEXPLAINED, "* ]]
}

@test "a difference without a reason is a failure" {
	suite '[ -z "${LD_PRELOAD:-}" ]' same explained1 other
	run -1 peers fake
	[[ "$output" == *"fake: other: ok without, status-1 with: UNEXPLAINED"* ]]
	[[ "${lines[-1]}" == "fake: 3 ran, 1 same (1 ok), 0 by chance, 1 differ (explained), 1 UNEXPLAINED, "* ]]
}

@test "a reason holds for these outcomes only" {
	suite '[ -z "${LD_PRELOAD:-}" ] || exit 3' explained1
	run -1 peers fake
	[[ "$output" == *"fake: explained1: ok without, status-3 with: UNEXPLAINED"* ]]
}

@test "a test that is as bad without the library is the same" {
	suite 'exit 4' other
	run -0 peers fake
	[[ "${lines[-1]}" == "fake: 1 ran, 1 same (0 ok), 0 by chance, 0 differ (explained), 0 UNEXPLAINED, "* ]]
}

@test "what does not differ when it runs again was chance, and is said to have been" {
	suite "[ -z \"\${LD_PRELOAD:-}\" ] || ! mkdir $BATS_TEST_TMPDIR/once" other
	run -0 peers fake
	[[ "$output" == *"fake: other was ok without and status-1 with, but not when it ran again"* ]]
	[[ "${lines[-1]}" == "fake: 1 ran, 0 same (0 ok), 1 by chance, 0 differ (explained), 0 UNEXPLAINED, "* ]]
}

@test "a test is left out only where known says skip" {
	printf '%s\n' 'fake explained* * * any' 'fake left skip - no use' > "$peers/known"
	suite : same left explained1
	run -0 peers fake
	[[ "${lines[-1]}" == "fake: 2 ran, 2 same (2 ok), "* ]]
}

@test "a death by a signal and the end of the time are outcomes of their own" {
	suite '[ -z "${LD_PRELOAD:-}" ] || kill -SEGV $$' other
	run -1 peers fake
	[[ "$output" == *"fake: other: ok without, signal-11 with: UNEXPLAINED"* ]]
	suite '[ -z "${LD_PRELOAD:-}" ] || sleep 30' other
	echo 'limit=1' >> "$peers/fake.suite"
	run -1 peers fake
	[[ "$output" == *"fake: other: ok without, time with: UNEXPLAINED"* ]]
}

@test "every suite is listed, released, and says what it is; every line of known is of one" {
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

@test "a wrong call is told what is wrong" {
	run -2 peers --ony x
	[[ "$output" == "test/peers: unknown option --ony (--help lists the options)" ]]
	run -2 peers fame
	[[ "$output" == "test/peers: unknown suite fame (--list has them)" ]]
	run -1 peers --only 'x*' fake
	[[ "$output" == *"test/peers: fake has no such test"* ]]
}
