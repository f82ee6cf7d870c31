# SPDX-License-Identifier: BSD-2-Clause
# Shared by the lab's bats files, loaded after ../helper. Each file boots one virtual machine:
# setup_file() calls boot, which runs the file's function in_guest there. That runs one case after
# another, and the tests check what each has left in $results.
results=$BATS_FILE_TMPDIR/results

# build_mpi PROGRAM [FLAG…]: builds mpi-PROGRAM for both MPIs, as PROGRAM.openmpi and PROGRAM.mpich.
build_mpi() {
	local mpi

	for mpi in openmpi mpich; do
		"mpicc.$mpi" -O2 -I"$top_srcdir" "${@:2}" -o "$BATS_FILE_TMPDIR/$1.$mpi" \
			"$top_srcdir/test/programs/mpi-$1.c"
	done
}

build_count_reg() {
	gcc -O2 -shared -fPIC -I"$top_srcdir" -I"$top_builddir" -o "$BATS_FILE_TMPDIR/count-reg.so" \
		"$top_srcdir/test/programs/count-reg.c"
}

# vm_options for a file whose jobs do more than exchange messages, and in which thread timing does
# not matter. Waiting ranks keep a processor busy: with two in each machine, two machines in
# parallel have more of those than the host has processors, and slow down the ranks that work.
one_processor=(--smp 1)

# The settings that disable UCX's registration cache: up to UCX 1.15, and since 1.16.
no_ucx_cache=(UCX_IB_REG_METHODS=direct UCX_RCACHE_ENABLE=n)

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

# With TEST_ALL=1 thorough cases run, and so do controls whose results are known.
everything=${TEST_ALL:-}

# boot [FUNCTION…]: runs in_guest in a virtual machine with these vm_options. There it can call
# attempt, shimmed, known, thorough, counted, as_nobody, pair_over_… and the functions named here,
# and use guest_variables, if set.
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
	[ -n "$everything$LAB_CONTROLS" ] || "$top_srcdir/test/lab/controls" put "$results" >&3
	{
		declare -p library programs top_srcdir BATS_FILE_TMPDIR no_ucx_cache attempt_seconds everything \
			"${guest_variables[@]}"
		declare -f attempt shimmed known thorough counted as_nobody pair_over_ucx pair_over_libfabric \
			in_guest "$@"
		# Open MPI requires this of root, and on a machine with fewer processors than ranks.
		echo 'export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
			export OMPI_MCA_rmaps_base_oversubscribe=1 # since 5:
			export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
			# Each process of a job would load plugins for displays, OpenCL and PCI, of no use here.
			export HWLOC_PLUGINS_PATH=/nonexistent'
		echo in_guest
	} > "$results/script"
}

# booted: says which attempts were repeated, and keeps the controls if a record is made.
booted() {
	[ ! -e "$results/repeated" ] || sed 's/^/# repeated: /' "$results/repeated" >&3
	[ -z "${LAB_CONTROLS:-}" ] || "$top_srcdir/test/lab/controls" take "$results"
}

# thorough COMMAND…: in the guest, a case that only the tests marked as thorough look at.
thorough() {
	[ -z "$everything" ] || "$@"
}

# known NAME || attempt NAME …: in the guest, a control: a case without the library, which says
# something of UCX, the kernel and so on, and nothing of ours. A short test run takes its result from
# the record that test/lab/controls keeps.
known() {
	echo "$1" >> /ctl/controls
	[ -e "/ctl/$1.status" ]
}

# attempt NAME [VARIABLE=VALUE…] COMMAND…: in the guest, runs one case: output to NAME.out and
# NAME.err, exit status to NAME.status. By chance, and without the library too, a job of MPICH over UCX
# 1.18 fails an assertion of a thread of UCX where it ends, or waits there for ever: that is tried
# again, counted and printed, as it could hide a fault of ours.
attempt() {
	local name=$1 status odd try began=$SECONDS
	shift
	for try in 1 2 3 4 5; do
		status=0
		timeout "$attempt_seconds" env "$@" > "/ctl/$name.out" 2> "/ctl/$name.err" < /dev/null || status=$?
		odd=
		[[ $status != 124 || $* != *mpirun.mpich* ]] || odd='MPICH did not end'
		! grep -qs 'ib_device\.c.* Assertion .*cb_id' "/ctl/$name.out" "/ctl/$name.err" ||
			odd="UCX's assertion of cb_id failed"
		[ -n "$odd" ] || break
		echo "$name, attempt $try: $odd" >> /ctl/repeated
		cp "/ctl/$name.err" "/ctl/$name.err.$try"
	done
	echo "$status" > "/ctl/$name.status"
	echo "$((SECONDS - began)) s  $name" >> /ctl/took
}

# shimmed NAME …: the same with the library, and a report in NAME.json.
shimmed() {
	local name=$1
	shift
	attempt "$name" LD_PRELOAD="$library" PINALLOC_REPORT="/ctl/$name.json" "$@"
}

# counted NAME …: the same without the library, counting registrations.
counted() {
	local name=$1
	shift
	attempt "$name" LD_PRELOAD="$BATS_FILE_TMPDIR/count-reg.so" "$@"
}

# as_nobody NAME BYTES [VARIABLE=VALUE…] COMMAND…: runs one case without privileges and with a limit
# on locked memory. The command must be in a public directory, as the build directory may not be
# readable by everyone.
as_nobody() {
	local name=$1 limit=$2
	shift 2
	attempt "$name" prlimit --memlock="$limit:$limit" \
		setpriv --reuid 65534 --regid 65534 --clear-groups env "$@"
}

# pair_over_ucx MPI PROGRAM…: the command line for env, one word in a line: a job of two ranks whose
# messages use the device, not shared memory. By itself UCX 1.18 copies them, however large, and
# registers nothing.
pair_over_ucx() {
	printf '%s\n' UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=rxe0:1 \
		UCX_UD_VERBS_ETH_DGID_CHECK=n UCX_RNDV_SCHEME=get_zcopy
	case $1 in
	openmpi)
		printf '%s\n' mpirun.openmpi -np 2 --bind-to none --mca pml ucx \
			--mca btl ^openib,vader,tcp,ofi
		;;
	mpich)
		printf '%s\n' MPIR_CVAR_NOLOCAL=1 mpirun.mpich -np 2
		;;
	esac
	shift
	printf '%s\n' "$@"
}

# pair_over_libfabric PROGRAM…: the same for Open MPI over libfabric. Soft-RoCE supports messages up
# to 8 MiB, and fewer outstanding completions than libfabric requests without FI_UNIVERSE_SIZE.
pair_over_libfabric() {
	printf '%s\n' FI_UNIVERSE_SIZE=4 mpirun.openmpi -np 2 --bind-to none --mca pml cm --mca mtl ofi \
		--mca mtl_ofi_provider_include 'verbs;ofi_rxm' "$@"
}

# little_ucx: settings for env, one in a line. UCX gets a tenth of its usual memory, so that the
# program's own prevails. Messages use the device, not shared memory.
little_ucx() {
	printf '%s\n' UCX_TLS=rc_verbs,ud_verbs,self UCX_NET_DEVICES=rxe0:1 \
		UCX_UD_VERBS_ETH_DGID_CHECK=n UCX_RC_VERBS_SEG_SIZE=2k \
		UCX_RC_VERBS_TX_BUFS_GROW=128 UCX_RC_VERBS_RX_QUEUE_LEN=512 \
		UCX_UD_VERBS_TX_BUFS_GROW=128 UCX_UD_VERBS_RX_QUEUE_LEN=512
}

# ended NAME [STATUS]: prints a case's output; whether it ended with that status.
ended() {
	echo "$1:"
	cat "$results/$1.out" "$results/$1.err"
	[ "$(< "$results/$1.status")" = "${2:-0}" ]
}

# value NAME KEY: the number after KEY in a case's output.
value() {
	grep -o -- "$2 [0-9]*" "$results/$1.out" | cut -d' ' -f2
}

# reported NAME .json.path: a value of a case's report.
reported() {
	figure "$results/$1.json" "$2"
}

# of_the_heap REPORT: why requests for its memory went to libibverbs. UCX 1.18 registers a dma-buf
# that is none, to see whether it could; and libfabric must not get a key that is in use.
of_the_heap() {
	figure "$1" '.registration.passed_through_reasons |
		del(.["not heap memory"], .["dma-buf"], .["key in use, and has to be unique"])'
}

# --- of what stale-cases has left ---

# cases NAME GROUP: "WAY SIDE OUTCOME" for each case of a group.
cases() {
	awk -v group="$2" 'NR == FNR { of[$2] = $1; next } of[$1] == group { print $1, $2, $3 }' \
		<("$BATS_FILE_TMPDIR/mpi-stale.openmpi" list) "$results/$1.cases"
}

# number NAME GROUP PATTERN: the number of cases that match; prints the others.
number() {
	cases "$1" "$2" | grep -vE "$3" >&2 || :
	cases "$1" "$2" | grep -cE "$3" || :
}

# worse CONFIGURATION GROUP: the cases that are worse with the library than without.
worse() {
	cases "$1-without" "$2" > "$BATS_TEST_TMPDIR/without"
	cases "$1-with" "$2" > "$BATS_TEST_TMPDIR/with"
	[ -s "$BATS_TEST_TMPDIR/with" ]
	awk -v where="$1" '
		BEGIN { grade["right"] = 1; grade["corrupt"] = 3
			grade["never"] = grade["error"] = grade["hang"] = 2 }
		NR == FNR { before[$1 $2] = $3; next }
		grade[$3] > grade[before[$1 $2]] { print where, $0, "was", before[$1 $2] }' \
		"$BATS_TEST_TMPDIR/without" "$BATS_TEST_TMPDIR/with"
}
