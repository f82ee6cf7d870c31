# SPDX-License-Identifier: BSD-2-Clause
# What test/peers/run does with a suite. NAME.suite defines
#   packages=(…)  what it needs of Debian
#   limit=SECONDS for one test; 60
#   at_once=N     how many run at a time; 1
#   in_vm=yes     that it runs in a virtual machine: it has, in place of try, one_test TEST, which prints
#                 "part outcome" for each part of the test, by way of over_ucx()
#   prepare       gets and builds it, in $work
#   tests         prints the names of its tests, of which those are left out that
#                 test/peers/known says "skip" of
#   try TEST      runs one in an empty directory, $run, by way of under(), so with the library
#                 or without; its status is the outcome, unless there is
#   outcomes TEST STATUS LOG, which prints "part outcome" for each part of the test; it is
#                 called in the same directory.

# --- getting it ---

# apt_sources COMMAND…: apt-get with the source repositories that match the package repositories;
# the system's configuration is not changed.
apt_sources() {
	local apt=$store/apt
	local options=(-q -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
		-o "Dir::State::Lists=$apt/lists" -o APT::Sandbox::User=root)

	if [ ! -e "$apt/sources.list" ]; then
		mkdir -p "$apt/lists/partial"
		apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' \
			'Created-By: Packages' 'Origin: Debian' | sort -u > "$apt/sources.list"
		[ -s "$apt/sources.list" ] || die "apt knows no package of Debian's: apt-get update"
		quietly apt-get "${options[@]}" update
	fi
	quietly apt-get "${options[@]}" "$@"
}

# source_of PACKAGE [OPTION]: its source as $work/source: that in the folder of --sources, or Debian's with its
# patches; without them with --tar-only, for an archive that has no other.
source_of() {
	local archive release

	[ ! -e "$work/source" ] || return 0
	if [ -e "$sources/$1" ]; then
		cp -a "$sources/$1" "$work/source"
		return
	fi
	mkdir -p "$work/unpacked" && cd "$work/unpacked" || return
	# A mirror may have the release's alone, not the newest.
	release=$(. /etc/os-release && echo "$VERSION_CODENAME")
	(apt_sources source "$@") 2> /dev/null || (apt_sources source "$1/$release" "${@:2}") || die "no source of $1"
	for archive in "$work"/unpacked/*.orig.tar.*; do
		[ $# -eq 1 ] || tar -xf "$archive" -C "$work/unpacked" || die "no source of $1"
	done
	mv "$work"/unpacked/*/ "$work/source"
}

# quietly COMMAND…: shows its output only if it fails.
quietly() {
	"$@" > "$store/quietly.log" 2>&1 < /dev/null && return
	tail -n 40 "$store/quietly.log" >&2
	die "$1 failed (its output is above)"
}

# --- running it ---

# in_guest TEST…: calls one_test for each of them in a virtual machine, which has the functions in $helpers, under()
# and $how, too. What it writes to /ctl are the logs.
in_guest() {
	rm -rf "$work/ctl" && mkdir -p "$work/ctl"
	{
		declare -p how library work limit
		declare -f under over_ucx outcome_of one_test $helpers
		echo "export HOME=/tmp; for test in ${*@Q}; do one_test \"\$test\" >> /ctl/outcomes; done"
	} > "$work/ctl/script"
	nice -n 5 "$top/test/lab/vm" --smp 1 --timeout 14400 --dir "$work/ctl" -- bash /ctl/script \
		> "$work/logs/$how-machine" 2>&1 || { tail "$work/logs/$how-machine" >&2 && return 1; }
	cat "$work/ctl/outcomes"
	rm -rf "$work/logs/$how"
	cp -r "$work/ctl" "$work/logs/$how"
}

# over_ucx MPI N PROGRAM…: a job of N ranks whose messages all use the device. UCX gets a tenth of
# its usual memory, for which a short job mostly waits. The machine's clock may be fast on a busy
# host: 30 s without an answer are no failure.
over_ucx() {
	local mpi=$1 n=$2
	local -a line=(UCX_RC_VERBS_SEG_SIZE=2k UCX_RC_VERBS_TX_BUFS_GROW=128 UCX_RC_VERBS_RX_QUEUE_LEN=512
		UCX_UD_VERBS_TX_BUFS_GROW=128 UCX_UD_VERBS_RX_QUEUE_LEN=512 UCX_UD_VERBS_TIMEOUT=10m)
	shift 2
	under "${line[@]}" timeout -k 5 "$limit" "mpirun.$mpi" -n "$n" "$@"
}

# under COMMAND…: runs it with the library, and with an adapter, too, if $how says so.
under() {
	if [ "$how" = armed ]; then
		env LD_PRELOAD="$library:$adapter/armed.so" LD_LIBRARY_PATH="$adapter${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
	elif [ "$how" = with ]; then
		env LD_PRELOAD="$library" "$@"
	else
		env -u LD_PRELOAD "$@"
	fi
}

outcome_of() { # STATUS
	case $1 in
	0) echo ok ;;
	77) echo skipped ;;
	124 | 137) echo time ;;
	*) if [ "$1" -gt 128 ]; then echo "signal-$(($1 - 128))"; else echo "status-$1"; fi ;;
	esac
}

outcomes() {
	echo "$1 $(outcome_of "$2")"
}

# one TEST N: runs it in its own directory, whose name is short, for sockets, and the same with and
# without the library, as programs built there may contain it. What it leaves running ends with its
# namespace, and the test with this script.
one() {
	local log=$work/logs/$how/${1//\//_} run=$work/run/$2 status=0

	mkdir -m 777 "$run" && cd "$run" || return
	export -f try under $helpers
	export how library work here top store run
	"${ended[@]}" timeout -s KILL "$((limit * ${TIMEOUT_SCALE:-1}))" nice -n 5 "${contained[@]}" \
		bash -c 'try "$1"; exit $?' - "$1" > "$log" 2>&1 < /dev/null || status=$?
	outcomes "$1" "$status" "$log" > "$log.outcomes"
	cd / && rm -rf "$run"
}

measure() {
	local test n=0 ended=(setpriv --pdeathsig KILL)
	local contained=("${ended[@]}" unshare --pid --fork --kill-child --mount-proc)

	"${contained[@]}" true 2> /dev/null || contained=()
	rm -rf "$work/logs/$how" "$work/run"
	mkdir -p "$work/logs/$how" "$work/run"
	for test; do
		while [ "$(jobs -rp | wc -l)" -ge "$at_once" ]; do
			wait -n
		done
		n=$((n + 1))
		(one "$test" "$n") &
	done
	wait
	for test; do
		cat "$work/logs/$how/${test//\//_}.outcomes" || return
	done
}

# compare RESULT TEST…: "part without with way" for all parts of these tests, and each way to run them with the
# library; "none" where only the other run has a part.
compare() {
	local result=$1
	shift
	: > "$result"
	for how in without "${ways[@]}"; do
		$measure "$@" | tr -s ' ' | sort -u -k1,1 > "$result.$how" ||
			die "$name did not come to its end ($how); see $work/logs"
		[ "$how" = without ] || join -a1 -a2 -e none -o 0,1.2,2.2 "$result.without" "$result.$how" |
			sed "s/\$/ $how/" >> "$result"
	done
}

# explanation PART WITHOUT WITH: the reason in test/peers/known; fails if there is none.
explanation() {
	local suite test without with reason

	while read -r suite test without with reason; do
		[[ $without == skip && $2 != skip || $without != skip && $2 == skip ]] && continue
		# shellcheck disable=SC2053 # they are patterns
		if [[ $suite == "$name" && $1 == $test && $2 == $without && $3 == $with ]]; then
			echo "$reason"
			return
		fi
	done < "$here/known"
	return 1
}

# unskipped: the tests of standard input that are not skipped.
unskipped() {
	local test

	while read -r test; do
		# shellcheck disable=SC2053
		[[ $test == $only ]] || continue
		explanation "$test" skip - > /dev/null || echo "$test"
	done
}

# differing RESULT: the lines that differ without an explanation.
differing() {
	local part without with way

	while read -r part without with way; do
		[ "$without" = "$with" ] || explanation "$part" "$without" "$with" > /dev/null ||
			echo "$part $without $with $way"
	done < "$1"
}

# test_of PART: the name of the test it belongs to.
test_of() {
	echo "${1%%:*}"
}

# again RESULT: runs unexplained differences once more, each alone, in all ways; those that disappear are
# reported as chance.
again() {
	local part without with way suspects at_once=1

	mapfile -t suspects < <(differing "$1" | while read -r part _; do test_of "$part"; done | sort -u)
	[ ${#suspects[@]} -gt 0 ] || return 0
	rm -rf "$work/logs-first" && cp -r "$work/logs" "$work/logs-first"
	compare "$1.again" "${suspects[@]}"
	differing "$1" > "$1.first"
	differing "$1.again" > "$1.second"
	awk 'FILENAME == ARGV[1] { again[$1, $4]; next } !(($1, $4) in again)' "$1.second" "$1.first" > "$1.chance"
	while read -r part without with way; do
		echo "$name: $part was $without without and $with $way, but not when it ran again"
	done < "$1.chance"
	awk 'FILENAME == ARGV[1] { chance[$1, $4]; next } ($1, $4) in chance { $2 = $3 = "chance" } 1' \
		"$1.chance" "$1" > "$1.judged" && mv "$1.judged" "$1"
}

# judge RESULT WAY: lists the differences, and summarises.
judge() {
	local part without with way reason ran=0 same=0 chance=0 explained=0 unexplained=0

	while read -r part without with way; do
		[ "$way" = "$2" ] || continue
		ran=$((ran + 1))
		if [ "$with" = chance ]; then
			chance=$((chance + 1))
		elif [ "$without" = "$with" ]; then
			same=$((same + 1))
		elif reason=$(explanation "$part" "$without" "$with"); then
			explained=$((explained + 1))
			echo "$name: $part: $without without, $with $way: $reason"
		else
			unexplained=$((unexplained + 1))
			echo "$name: $part: $without without, $with $way: UNEXPLAINED"
		fi
	done < "$1"
	echo "$name$([ "$2" = with ] || echo ", $2"): $ran ran, $same same" \
		"($(awk -v way="$2" '$2 ~ /^ok/ && $2 == $3 && $4 == way' "$1" | wc -l) ok)," \
		"$chance by chance, $explained differ (explained), $unexplained UNEXPLAINED, $SECONDS s" |
		tee -a "$store/summary"
	[ "$ran" -gt 0 ] && [ "$unexplained" -eq 0 ]
}

# run_suite NAME
run_suite() {
	local selected way status=0 measure=measure

	name=$1
	work=$store/$name
	packages=() limit=60 at_once=1 helpers='' in_vm=''
	mkdir -p "$work/logs"
	SECONDS=0
	. "$here/$name.suite"
	"$top/test/install-packages" --all "${packages[@]}" || die "packages are missing"
	prepare || die "$name cannot be built"
	mapfile -t selected < <(tests | unskipped)
	[ ${#selected[@]} -gt 0 ] || die "$name has no such test"
	# A machine has an adapter of its own.
	[ -z "$in_vm" ] || ways=(with) measure=in_guest
	compare "$work/result" "${selected[@]}"
	again "$work/result"
	for way in "${ways[@]}"; do
		judge "$work/result" "$way" || status=1
	done
	return $status
}
