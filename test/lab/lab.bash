# SPDX-License-Identifier: BSD-2-Clause
# Shared by the lab's bats files, which begin with `load lab`. Each file boots one virtual machine:
# setup_file() calls boot, which runs the file's function in_guest there. That runs one case after
# another, and the tests check what each has left in $results.
load ../helper
results=$BATS_FILE_TMPDIR/results

setup() {
	:
}

# build_mpi PROGRAM [FLAG…]: builds mpi-PROGRAM for both MPIs, as PROGRAM.openmpi and PROGRAM.mpich.
build_mpi() {
	local mpi

	for mpi in openmpi mpich; do
		"mpicc.$mpi" -O2 -I"$top_srcdir" "${@:2}" -o "$BATS_FILE_TMPDIR/$1.$mpi" \
			"$top_srcdir/test/programs/mpi-$1.c"
	done
}

# build_shared OUTPUT PROGRAM [FLAG…]: builds a library.
build_shared() {
	gcc -O2 -shared -fPIC -I"$top_srcdir" -I"$top_builddir" -o "$BATS_FILE_TMPDIR/$1" \
		"$top_srcdir/test/programs/$2.c" "${@:3}"
}

# Waiting ranks keep a processor busy: with two in each machine, two machines in parallel have more of
# those than the host has processors, and slow down the ranks that work. Files in which the timing of
# threads matters have --smp 2.
vm_options=(--smp 1)

# The settings that disable UCX's registration cache, up to UCX 1.15 and since 1.16; and those that give
# UCX a tenth of its usual memory, so that the program's own prevails. Those of every job are in
# guest-stage2.
no_ucx_cache=(UCX_IB_REG_METHODS=direct UCX_RCACHE_ENABLE=n)
little_ucx=(UCX_RC_VERBS_SEG_SIZE=2k UCX_RC_VERBS_TX_BUFS_GROW=128 UCX_RC_VERBS_RX_QUEUE_LEN=512
	UCX_UD_VERBS_TX_BUFS_GROW=128 UCX_UD_VERBS_RX_QUEUE_LEN=512)

# LAB_LOAD=1 runs in_guest beside a load, which says in $results/load.log what it did: test programs
# are slower, and stopped at random. LAB_LOAD_LOOPS and LAB_LOAD_SEED are what load calls so.
slower=1 beside_load=()
if [ -n "${LAB_LOAD:-}" ]; then
	slower=5
	beside_load=("$top_srcdir/test/lab/load" --log /ctl/load.log
		--loops "${LAB_LOAD_LOOPS:-8}" ${LAB_LOAD_SEED:+--seed "$LAB_LOAD_SEED"} "$programs" "$BATS_FILE_TMPDIR" --)
fi

# How long a case may take: on a slow machine set TIMEOUT_SCALE, which scales other limits as well.
attempt_seconds=$((120 * slower * ${TIMEOUT_SCALE:-1}))

# With TEST_ALL=1 thorough cases run.
everything=${TEST_ALL:-}

# boot [FUNCTION…]: runs in_guest in a virtual machine with these vm_options. There it can call
# the functions below, up to `publish`, and those named here, and use guest_variables, if set.
boot() {
	write_script "$@"
	TIMEOUT_SCALE=$((slower * ${TIMEOUT_SCALE:-1})) "$top_srcdir/test/lab/vm" "${vm_options[@]}" \
		--dir "$results" -- "${beside_load[@]}" bash /ctl/script > "$results/log" 2>&1 ||
		{ cat "$results/log" && false; }
	booted
}

# boot_pair [FUNCTION…]: the same on the first of two machines with these pair_options. In_guest
# has as /ctl what both have as /share.
boot_pair() {
	write_script "$@"
	"$top_srcdir/test/lab/pair" "${pair_options[@]}" --share "$results" -- unshare --mount \
		bash -c 'mount --bind /share /ctl && exec bash /ctl/script' > "$results/log" 2>&1 ||
		{ cat "$results/log" && false; }
	booted
}

write_script() {
	mkdir "$results"
	{
		declare -p library programs top_srcdir BATS_FILE_TMPDIR no_ucx_cache little_ucx attempt_seconds \
			everything "${guest_variables[@]}"
		declare -f thorough attempt counted shimmed job ranks as_nobody publish in_guest "$@"
		echo in_guest
	} > "$results/script"
}

# booted: says which attempts were repeated.
booted() {
	[ ! -e "$results/repeated" ] || sed 's/^/# repeated: /' "$results/repeated" >&3
}

# thorough COMMAND…: in the guest, a case that only the tests marked as thorough look at.
thorough() {
	[ -z "$everything" ] || "$@"
}

# attempt NAME [VARIABLE=VALUE…] COMMAND…: in the guest, runs one case: output to NAME.out and
# NAME.err, exit status to NAME.status.
attempt() {
	local name=$1 status=0 began=$SECONDS
	shift
	timeout "$attempt_seconds" env "$@" > "/ctl/$name.out" 2> "/ctl/$name.err" < /dev/null || status=$?
	echo "$status" > "/ctl/$name.status"
	echo "$((SECONDS - began)) s  $name" >> /ctl/took
}

# counted NAME …: the same, counting registrations.
counted() {
	attempt "$1" LD_PRELOAD="$BATS_FILE_TMPDIR/count-reg.so" "${@:2}"
}

# shimmed NAME …: runs a case with the library, and a report in NAME.json.
shimmed() {
	attempt "$1" LD_PRELOAD="$library" PINALLOC_REPORT="/ctl/$1.json" "${@:2}"
}

# job NAME …: the same with reports of all ranks, NAME.0.json and so on.
job() {
	attempt "$1" LD_PRELOAD="$library" PINALLOC_REPORT="/ctl/$1.%r.json" "${@:2}"
}

# ranks MPI N [VARIABLE=VALUE…] WORD…: sets command to a job of N ranks, which have these variables; mpirun
# does not.
ranks() {
	local mpi=$1

	command=("mpirun.$mpi" -n "$2")
	shift 2
	while [[ $1 == *=* ]]; do
		case $mpi in
		openmpi) command+=(-x "$1") ;;
		mpich) command+=(-env "${1%%=*}" "${1#*=}") ;;
		esac
		shift
	done
	command+=("$@")
}

# as_nobody HOW NAME BYTES [VARIABLE=VALUE…] COMMAND…: one case, HOW being attempt or shimmed, without
# privileges and with a limit on locked memory. The command must be in a public directory.
as_nobody() {
	local limit=$3

	[[ $limit == *:* ]] || limit=$limit:$limit
	"$1" "$2" prlimit --memlock="$limit" \
		setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/tmp "${@:4}"
}

# publish [FILE…]: the build directory may not be readable by everyone, so copies these, the command and the
# library to /run/public, and lets everyone write to /ctl.
publish() {
	mkdir -p -m 755 /run/public /run/public/{bin,lib}
	cp "${programs%/test/programs}/pinalloc" /run/public/bin
	cp "$library" /run/public/lib
	[ $# -eq 0 ] || cp -R "$@" /run/public
	chmod 777 /ctl
	library=/run/public/lib/libpinalloc.so
}

# ended NAME [STATUS]: prints a case's output; whether it ended with that status.
ended() {
	echo "$1:"
	cat "$results/$1.out" "$results/$1.err"
	[ "$(< "$results/$1.status")" = "${2:-0}" ]
}

# right NAME [ROUNDS]: a job ran, and every word arrived.
right() {
	ended "$1"
	grep -qE "^rounds ${2:-$rounds} wrong 0( |\$)" "$results/$1.out"
}

# unchanged CASE: the program ended, and printed, as plain-CASE, but for the library's lines.
unchanged() {
	ended "$1" "$(< "$results/plain-$1.status")"
	diff "$results/plain-$1.out" "$results/$1.out"
	diff "$results/plain-$1.err" <(grep -v '^pinalloc' "$results/$1.err")
}

# said CASE: the library's lines.
said() {
	grep '^pinalloc' "$results/$1.err" || :
}

# says CASE STATUS WHAT REGEX: `pinalloc check` printed exactly one such line.
says() {
	cat "$results/$1.out" "$results/$1.err"
	[ "$(grep -cE "^$(printf '%-4s' "$2")  $3: $4\$" "$results/$1.out")" -eq 1 ]
}

# value NAME KEY: the number after KEY in a case's output.
value() {
	grep -oE -- "$2 [0-9]+" "$results/$1.out" | cut -d' ' -f2
}

# reported NAME .json.path: a value of a case's report.
reported() {
	figure "$results/$1.json" "$2"
}

# holds NAME CONDITION…: the case ended, or the job of which this is a rank, and what jq says of its report is
# true.
holds() {
	local condition
	[ ! -e "$results/$1.status" ] || ended "$1"
	for condition in "${@:2}"; do
		echo "$1: $condition"
		jq -e "$condition" "$results/$1.json" > /dev/null
	done
}

# merged DIRECTORY FILTER: a value of the job's report; the status of that says nothing.
merged() {
	("$top_builddir/pinalloc" report --json "$1" 2> /dev/null || :) | jq -c "$2"
}

# of_the_heap REPORT: why requests for its memory went to libibverbs. UCX 1.18 registers a dma-buf
# that is none, to see whether it could; and libfabric must not get a key that is in use.
of_the_heap() {
	figure "$1" '.registration.passed_through_reasons |
		del(.["not heap memory"], .["dma-buf"], .["key in use, and has to be unique"])'
}
