# SPDX-License-Identifier: BSD-2-Clause
# What a program may expect of verbs, as scripts for test/programs/rdma-script, which says what their
# words mean. Each is right with the library and without, unless its comment says otherwise.
# shellcheck shell=bash disable=SC2034 # used by the files that load this one
declare -gA script

# A device, a domain, and two buffers of the heap.
two='c=open; p=pd; a=malloc 100000; b=malloc 100000'
party="$two; x=reg a; y=reg b"

# --- registrations ---

script[answer]="
	$two; x=reg a; y=iova2 b; z=iova a+123:1
	send x y
	dereg z; send x y
	dereg x y; unqp; dealloc p"
script[iova]="
	$two; x=iova2 a 0x10000000000; y=iova2 b 0x10000000000
	send x y; dereg x y"
# With the library its region cannot have the order of both.
script[relaxed]="
	$two; x=reg a lwrx; y=reg b lwrx; z=reg a
	unlike z x
	send x y; dereg z; send x y; dereg x y"
# Only the far side needs a peer's rights. PINALLOC_ACCESS=local.
script[rights]="
	$two; x=reg a l; y=reg b
	send x y; refused read y x
	dereg x y"
# With the library: without it the second one is memory corruption.
script[twice]="
	$party; kept=reg a
	dereg x; EINVAL dereg x
	own=reg a lwrb; EINVAL dereg x
	x=reg a; send x y; dereg x y own
	unqp; EBUSY dealloc p
	dereg kept; dealloc p"
# One inside the other, in whole pages: the one that is kept does not notice.
overlap='b=malloc 0x3000
	out=reg m+0x1000:0x3000; in=reg m+0x2000:0x1000; far=reg b:0x1000
	dereg out; send in far; send far in; dereg in far
	out=reg m+0x1000:0x3000; in=reg m+0x2000:0x1000; far=reg b
	dereg in; send out far; send far out; dereg out far
	unqp; dealloc p'
script[overlap]="p=pd; m=aligned 0x1000 0x4000; $overlap"
script[foreign]="p=pd; m=map 0x4000; $overlap"
# The structures, and keys that were copied, while others come and go.
script[copies]="
	$party; send x y
	1000 times: m=malloc ?20; u=reg m; v=reg a; dereg v u; free m; send x y 100
	send x y; same x; same y
	dereg x y; unqp; dealloc p"
script[threads]='
	p0=pd; open; p1=pd
	4 threads 2000 times: use p@%2; a=malloc ?16; b=malloc ?16; x=reg a; y=reg b; write x y; dereg x y; free a b
	dealloc p0; dealloc p1'
# For strace: nothing stands between the marks.
script[pairs]="
	$party; dereg x y
	500 times: mark begin; x=reg a; dereg x; y=reg b; dereg y; mark end"
script[window]='
	p=pd; a=malloc 100000; b=malloc 100000; x=reg a l; y=reg b lb
	w=window 1 y; write x w; unwindow w
	w=window 2 y; write x w; unwindow w
	dereg x y'

# many N: so many at the same time, of which one half ends before the other, each in another order.
many() {
	local half=$(($1 / 2))
	echo "p=pd; a=malloc $1; b=malloc $1; far=reg b
		$half times: d#=reg a+#; e#=reg a+#
		40 times: send d#*$((half / 40)) far; send e#*$((half / 40)) far
		$half times: dereg d#*7%$half
		40 times: send e#*$((half / 40)) far
		$half times: dereg e#*7%$half
		unqp; dereg far; dealloc p"
}

# What a device cannot do, it refuses, and all is as before. Print it.
script[rereg]='
	p0=pd; a=malloc 100000; f0=map 100000; y0=reg f0
	p1=pd; b=malloc 100000; f1=map 100000; y1=reg f1; m=map 100000; none=at 0; hole=at 0x1000
	use p0; x=reg a; is-of x a; send x y0
	rereg x flags 1024; rereg x to b:0; rereg x to none:1; rereg x to b:1 rights lwr flags 4; is-of x a; send x y0
	rereg x to hole; is-of x a; send x y0
	rereg x to b:99999; is-of x b:99999; send x y0
	rereg x to m; is-of x m; send x y0; rereg x to m+5:77; is-of x m+5:77; send x y0
	rereg x to m:0; is-of x m+5:77; send x y0; rereg x to a; is-of x a; send x y0
	rereg x rights lwrb; is-of x a; send x y0; rereg x rights lwr; is-of x a; send x y0
	use p1; rereg x pd p1; is-of x a; send x y1
	use p0; rereg x pd p0 to b; is-of x b; send x y0
	dereg x y0; unqp; dealloc p0; use p1; dereg y1; unqp; dealloc p1'

# --- rights ---

# may SET RIGHT STEP: if the right is in the set; otherwise neither key serves a peer.
may() {
	[[ $1 == *"$2"* ]] && echo "$3$1+56:8" || echo "refused $3$1+56:8; refused ${3/%x/k}$1+56:8"
}
# Of each set that verbs allow the keys have exactly these rights, for the process itself and its peers. 1004 is a
# completion with IBV_WC_LOC_PROT_ERR.
exact() {
	local set sets=(0 l r lw lr la lwr lwa lra lwra)

	echo "p=pd; m=map 4K; y=reg m lwra"
	for set in "${sets[@]}"; do
		echo "a$set=malloc 5000; x$set=reg a$set $set; k$set=keys x$set a$set lkey"
	done
	for set in "${sets[@]}"; do
		[[ $set == *l* ]] && echo "read x$set+56:8 y" || echo "1004 read x$set+56:8 y"
		may "$set" r 'read y x'
		may "$set" w 'write y x'
		may "$set" a 'atomic y x'
	done
	echo "dereg ${sets[*]/#/x}; EINVAL reg a0 w; unqp; dereg y; dealloc p"
}
# What remains by design where remote rights are served. With the library.
script[region]='
	p=pd; m=map 4K; y=reg m lwra; a=malloc 5000; b=malloc 5000; x=reg a r; k=keys x a:8; other=keys x b:8
	read y other; o=keys x m+64:8; refused read y:8 o
	refused write y other; refused write y k
	dereg x; read y k; disable; refused read y k'
# A peer reaches the buffer k, and nothing around it, which is registered, too. PINALLOC_ACCESS=local with the
# library.
script[around]='
	p=pd; m=map 4K; y=reg m lwra; a=calloc 12288; w=reg a l; x=reg a+4101:1000; z=reg a+5101:1000; k=keys x a+4101:1000
	send y k; send y k:1; send y k+999:1
	o=keys w a+4101:8; l=keys w a+4101:8 lkey; fill a 1
	refused write y k-1:1; refused write y k-1:2; refused write y k+1000:1; refused write y k+999:2
	refused write y o; refused write y l; holds a 1
	refused read y k-1:1; refused read y k-1:2; refused read y k+1000:1; refused read y k+999:2
	refused read y o; refused read y l
	dereg x; fill a 2; refused write y k; refused write y k:1; holds a 2; refused read y k; refused read y k:1
	send y z; x=reg a+4101:1000; refused write y k:8; refused read y k:8; send y x
	dereg x z w y; unqp; dealloc p'

# --- protection domains and devices ---

# Registrations end when another domain is gone, and when another device is closed.
script[others]='
	c0=open
	2 times: p#=pd; a#=malloc 100000; b#=malloc 100000; x#=reg a#; y#=reg b#; send x# y#
	c1=open; p2=pd; a2=malloc 100000; b2=malloc 100000; x2=reg a2; y2=reg b2; send x2 y2
	use p0; unqp; dereg x0 y0; free a0 b0; dealloc p0
	use p1; send x1 y1; use p2; send x2 y2
	unqp; close c1
	use p1; send x1 y1; unqp; dereg x1 y1; dealloc p1'
# Closing a device takes with it what nobody has given up.
script[closed]="
	20 times: $party; send x y; unqp; close c; free a b
	$party; send x y; unqp; dereg x y; dealloc p; close c"
# The same while the heap grows; every other time libibverbs' own function does it.
script[growing]='
	beside: free g#%64; g#%64=malloc ?21; touch g#%64; sleep 2
	30 times: c=open; pd; a=malloc 1M; x=reg a; b=malloc 1M; y=reg b; sleep #%6; close c; c=open; pd; a=malloc 1M; x=reg a; sleep #%6; find 128; close c; find 0
	end'
# Two at a time, so that the next one may get the address of either.
script[reused]="
	c=open; o=pd; a=malloc 100000; b=malloc 100000; x=reg a; y=reg b
	100 times: n=pd; d=malloc 100000; e=malloc 100000; u=reg d; v=reg e; seen n; send u v; ! send x y; use o; send x y; unqp; dereg x y; dealloc o; free a b; o=pd; a=malloc 100000; b=malloc 100000; x=reg a; y=reg b; seen o; send x y; use n; send u v; unqp; dereg u v; dealloc n; free d e
	seen-again 100
	use o; unqp; dereg x y; dealloc o; close c"
script[busy]="
	$party; qp; EBUSY dealloc p; send x y
	unqp; EBUSY dealloc p; send x y
	unqp; dereg x y; dealloc p; close c"
script[imported]="
	$party; send x y
	i=import; j=import-pd p i
	use j; d=malloc 100000; e=malloc 100000; u=reg d; v=reg e; send u v; unqp; dereg u v; unimport j
	use p; send x y; unqp; dereg x y; dealloc p; close i; close c"
# Where the adapter cannot.
script[not-imported]="
	$party; ENOTSUP import; ENOTSUP import-pd p c
	send x y; unqp; dereg x y; dealloc p; close c"

# --- verbs that are linked, and others that dlsym() finds ---

script[mixes]='
	256 times: find #; c=open; p=pd; a=malloc 100000; b=malloc 100000; d=malloc 100000; m=map 100000; x=reg a; y=iova b; z=reg d; w=iova m; write x y; write y z; write z w; write w x; n=malloc 100000; ? rereg x to n; write x y; write w x; dereg x y z w; unqp; dealloc p; close c; free a b d m n'
script[old]="
	$party; send x y
	find 231 IBVERBS_1.0; c2=open; p2=pd; u=reg a; v=reg b; use p; send x y
	find 231 IBVERBS_1.0; use p2; dereg u v; dealloc p2; close c2
	find 0; use p; send x y; unqp; dereg x y; dealloc p; close c"
# Registrations of its own, as NCCL has.
script[found]="
	find 255; $party; send x y; unqp; dereg x y; dealloc p; close c"
# It is found what closes the device, with all there is on it.
script[found-closed]="
	20 times: find 0; $party; send x y; unqp; find 128; close c; free a b"

# --- with the library: the functions of pinalloc.h ---

works='k=malloc 100000; l=malloc 100000; g=lookup k; h=lookup l; send g h; unqp; free k l'

script[keys]='
	p0=pd; open; p1=pd
	4 threads 60 times: use p#%2; a=malloc ?23; b=malloc ?23; k=lookup a; l=lookup b; send k l 256K; free a b
	is pinned <= mapped; is registered >= pinned; is served = 0'
script[large]=$(for n in 16777215 16M 67108863 64M 268435455 256M; do
	echo "a=malloc $n; b=malloc $n; k=lookup a; l=lookup b; send k l 256K; free a b"
done)
script[outside]='
	a=malloc 4096; lookup a; ENOENT lookup a:0xffffffffffffffff
	s=at static; ENOENT lookup s:4096; m=map 1M; ENOENT lookup m
	s=at stack; ENOENT lookup s:4096; s=at code; ENOENT lookup s:1
	s=at 0; ENOENT lookup s:1; s=at 0xffffffffffffffff; ENOENT lookup s:1'
# Two blocks, the border of both, and the end of the heap. PINALLOC_REGISTER=lazy.
script[edge]='
	a=adjoining 80M; lookup a:80M; lookup a; lookup a+83886016:128
	e=reach a; lookup e-64:64; ENOENT lookup e-64:65; ENOENT lookup e:64'
# What is in memory is registered before anybody asks; what is not is left alone.
script[enable]="
	p=pd; a=malloc 64M; touch a; is mr_created = 0; is pinned = 0
	ENOENT disable
	enable; await pinned >= 60M
	m=malloc 300M; sleep 200; is mapped > 300M; is pinned < 80M
	touch m; await pinned >= 350M; free m
	$works
	x=reg a:1M; disable; is pinned > 0; is pinned < mapped
	dereg x; disable; is pinned = 0; is mr_created = mr_destroyed
	ENOENT disable
	$works
	disable; enable; await pinned >= 350M"
# PINALLOC_ACCESS=local,read
script[few-rights]='
	r=pd; p=pd; EACCES enable o; EACCES enable lw; is mr_created = 0
	enable l; EEXIST enable lr; enable l
	a=malloc 1M; lookup a l; lookup a 0; EACCES lookup a lr
	use r; EACCES lookup a lw; EACCES lookup a o; lookup a r; enable lx'
script[dealloc]="
	c=open; p=pd; a=malloc 1M; x=reg a; is served = 1; $works
	EBUSY dealloc p; $works
	dereg x; dealloc p; is pinned = 0
	p=pd; $works; qp; EBUSY dealloc p; $works; is pinned > 0
	dealloc p
	300 times: p=pd; x=reg a; dereg x; dealloc p
	is served = 301; is pinned = 0; is mr_created = mr_destroyed
	close c"
# Only what is asked for is registered. PINALLOC_REGISTER=lazy.
script[lazy]="
	p=pd; a=malloc 100M; lookup a; sleep 300
	is growth_steps > 1; is mr_created = 1
	$works"
# PINALLOC_REGISTER=off
script[off]='
	a=malloc 1M; ENOMEM lookup a; s=at static; ENOENT lookup s
	ENOMEM enable l; ENOENT disable; is mr_created = 0; is pinned = 0'

# reporting PATH: a report at any time, and figures.
reporting() {
	echo "$works
		report $1; ENOENT report /nowhere/report.json
		few-figures; is growth_steps > 0; is live > 0; is live < mapped"
}

# --- caches of registrations ---

# stale N: so many blocks of few sizes, so that one comes back soon, are sent, and received; a line each.
stale() {
	echo "p=pd; o=map 256K; y=reg o
		$1 times: a=malloc 4K<~15; x=cached a; write x y; free a
		$1 times: a=malloc 4K<~15; x=cached a; write y x; free a
		show hits"
}

# --- what is registered ahead ---

# ahead KIB MIB CHANGES: blocks of this size, which begin on any page, are registered for the first time
# once nothing has been registered for a while: at most a tenth waits, and at most a quarter is registered
# twice. So they are when blocks have gone, and others have come, of up to twice the size, however long that took:
# what may be registered ahead without requests begins anew after it.
ahead() {
	local n=$(($2 * 1024 / $1))
	local of="a#*7919%$n" pad="q#*7919%$n"
	local served="rest; note
		$n times: x=reg a#; dereg x
		is +served = $n; is +waited <= $((n / 10)); is registered <= resident 125"

	echo "p=pd; f=malloc $1K; touch f; x=reg f:4K; dereg x
		$n times: a#=malloc $1K; q#=malloc 16K+?15; touch a# q#
		$served
		$3 times: free $of $pad; $of=malloc $(($1 / 2))K+~$(($1 * 3 / 2))K; $pad=malloc 16K+?15; touch $of $pad; sleep 1
		enable
		$served"
}

# blocks [FIGURES]: a small one is registered, and then many of sizes up to 200 MiB, one after the other and
# several at a time. With a word it takes the library, and shows figures.
blocks() {
	local n of='write x:4K y; write y x' sizes=()

	for ((n = 5000; n < 200 << 20; n = n * 5 / 2)); do
		sizes=("$n" "${sizes[@]}" "$n")
	done
	echo "s=malloc 4K; y=reg s; ${1:+show mr_created; note}"
	for n in "${sizes[@]}"; do
		echo "a=malloc $n; new a; touch a; x=reg a; $of+$((n - 4096)):4K; dereg x; free a"
	done
	for n in 15733640 102400; do
		echo "12 times: a#=malloc $n; new a#; touch a#
			12 times: x=reg a#; $of+$((n - 4096)):4K; dereg x
			12 times: free a#*5%12"
	done
	echo "sleep 1000; ${1:+show +mr_created pages absent}"
}

# sparse STEPS [LATER]: they use a large block b of which little is touched, with a registration y of other
# memory. Then whoever registers ahead has time.
sparse() {
	echo "p=pd; a=malloc 100K; o=malloc 100K; x=reg a; y=reg o; $1
		sleep 3000; show resident held
		${2:+$2; }write x y"
}
# Of 1 GiB a sixteenth.
script[front]=$(sparse 'b=malloc 1G; fill b:64M 7' 'holds b:64M 7')

# Blocks as one range each, where a heap that has grown in steps may have borders. What libibverbs allocates for the
# registration thread must not lie between them.
whole='p=pd; o=malloc 4K; y=reg o; sleep 1500'
swept='x=reg a; sweep x y; dereg x'
script[merge]="
	$whole
	24 times: a#=malloc 8M+5000; touch a#; x=reg a#; sweep x y; dereg x
	24 times: free a#*7%24
	a=malloc 192M; touch a; $swept
	32 times: x#=reg a+~96M:1+~96M; sweep x# y
	32 times: dereg x#"
script[grow]="
	$whole
	13 times: a=malloc 64M+#*8388608; touch a; $swept; free a"
script[realloc]="
	$whole; a=malloc 1
	12 times: realloc a 8M+#*8388608; x=reg a; holds a:#*8388608 7; sweep x y; dereg x; fill a 7"
script[any]="
	$whole
	60 times: free a#%5 b#%3; a#%5=malloc ?25; b#%3=malloc ?25; touch a#%5 b#%3; x=reg a#%5; sweep x y; dereg x; x=reg b#%3; sweep x y; dereg x"

# --- limits on memory ---

mapped='p=pd; o=map 4K; y=reg o'
# Each registration is larger than the one before. Print it.
script[sizes]=$mapped$(for ((n = 4; n <= 16384; n *= 2)); do
	printf '\n%s' "a=malloc ${n}K; x=reg a; send x+$((n - 4))K:4K y; dereg x; free a"
done)
script[waiting]="${script[sizes]}
	mark waiting; sleep 1000000"

# filling STEP: how often it succeeds in 64 times, where an adapter is full but for memory regions that nobody
# uses. Print it.
filling() {
	echo "p=pd; qp
		4 times: a=malloc 32M; touch a; x=reg a:1M; dereg x
		64 times: $1"
}

# crowded N M: two domains over one heap, in which N requests in each hold small parts, in any order; then M times
# what else takes room of the adapter. Print it.
crowded() {
	echo "p=pd; qp; q=pd
		384 times: a#=malloc 256K; touch a#
		5 times: use p; x=reg a#:1K; dereg x; use q; y=reg a#:1K; dereg y
		sleep 1000
		$1 times: use p; reg a#*89%384:32K; use q; reg a#*89%384:32K
		$2 times: m#=map 64K; reg m#; make cq; make qp; make srq; make mw"
}

# small MIB: so much of its own memory can be registered beside small buffers, each in heap that is touched.
small() {
	echo "$mapped
		12 times: a#=malloc 24M; touch a#; x#=reg a#:64K; send x#:4K y
		$1 times: m#=map 1M; reg m#"
}

# changing N: of a heap of 256 MiB so many blocks are registered at any time.
changing() {
	echo "$mapped
		256 times: a#=malloc 1M
		$1 times: x#=reg a#*89%128; send x#+~1020K:4K y
		$((160 - $1)) times: dereg x#%$1; x#%$1=reg a#*89%149; send x#%$1+~1020K:4K y"
}

# pieces [held]: of a block of 1 GiB 28 pieces of 8 MiB are touched and registered, one after the other, or with a
# word all at the same time.
pieces() {
	local x=x end='; dereg x'

	[ -z "${1:-}" ] || x=x# end=''
	echo "p=pd; o=malloc 2M; y=reg o; b=aligned 2M 1008M
		28 times: a=part b+#*37748736:8M; touch a; $x=reg a; write $x:2M y; write $x+2M:2M y; write $x+4M:2M y; write $x+6M:2M y$end"
	[ -z "${1:-}" ] || echo '28 times: dereg x#'
}

# --- pages of hugetlbfs ---

# Of 1 to 8 MiB each, 200 and 900 MiB in all; the first one is registered before there are others.
free=/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages
for n in 200 900; do
	script[hold-$n]="
		l=malloc 8M; y=reg l; say before $free
		$((n * 2 / 9 + 1)) times: a#=malloc 1M+#*5%8M
		$((n * 2 / 9 + 1)) times: x=reg a#; write x y; dereg x
		say after $free"
done
# Forks with an empty pool; the child reads a page that the parent has written in between, and nothing else of the
# heap.
for x in 'x=reg a' ''; do
	script[empty${x:+-registered}]="
		p=pd; a=malloc 16M; touch a; fill a+8M:8 5; $x
		tell /proc/sys/vm/nr_hugepages 0
		child: holds a+8M:8 5
		fill a+8M:8 6; sleep 1000
		end"
done

# --- where pages are ---

# Between free pages, while other threads register and free, and the kernel compacts memory, as root.
script[compacted]='
	p=pd; a=aligned 4K 48M; m=map 48M
	12288 times: fill a+#*4096:4K #; touch m+#*4096:1
	free m
	48 times: x#=reg a+#*1048576:1M
	beside: b=malloc ?21; x=reg b; fill b #; holds b #; dereg x; free b
	beside: b=malloc ?21; x=reg b; fill b #; holds b #; dereg x; free b
	30 times: frames a; tell /proc/sys/vm/compact_memory 1; sleep 50
	frames a; show pages moved
	end
	12288 times: holds a+#*4096:4K #
	48 times: dereg x#'

# On two nodes with a processor each. In figures: pages on the node that is to have them, and on the other one.
of_both='on 0; a#=malloc 16M; on 1; b#=malloc 16M'
registered='6 times: on 0; x=reg a#; dereg x; on 1; x=reg b#; dereg x'
counted='show own other; is absent = 0'
script[first]="
	p=pd; s=malloc 64; y=reg s
	2 threads 6 times: on @; a#=malloc 16M; touch a#; sleep 500; x=reg a#; dereg x; placed a# @
	$counted"
script[touched]="
	p=pd; s=malloc 64; y=reg s
	6 times: $of_both
	sleep 2000
	6 times: on 0; touch b#; on 1; touch a#
	sleep 2000
	$registered
	6 times: placed a# 1; placed b# 0
	$counted"
# Nobody touches it.
script[crosswise]="
	p=pd
	on 1
	6 times: a#=malloc 16M
	on 0
	6 times: x=reg a#; dereg x; placed a# 1
	$counted"
script[reserve]="
	on 1; p=pd; s=malloc 64; y=reg s; a=malloc 128M; placed a 1
	$counted"

# --- pools ---

# slices DOMAIN: of all sizes have keys there, and nothing is registered for them.
slices() {
	echo "use $1; note"
	for n in 1 7 49 343 2401 16807 117649 823543 5764801; do
		echo "a=take g $n; b=take g $n; k=lookup a; l=lookup b; send k l; x=reg b; send x k; dereg x; give g a; give g b"
	done
	echo "await +waited = 0; is passed_through = 0; unqp"
}
script[slices]="
	p0=pd; enable; g=pool 96M; is pinned >= 96M
	$(slices p0)
	p1=pd; enable; is registered >= 192M
	$(slices p1)
	$(slices p0)
	destroy g"
# The heap gets the memory of a pool that is destroyed, and another pool does.
script[back]='
	g=pool 96M; a=take g 96M; resident a; is live >= 96M
	touch a; note; give g a; destroy g; is +live <= -96M; is +mapped >= 0
	note; b=malloc 96M; below b a; is +mapped = 0
	free b; g=pool 96M; is +mapped = 0; destroy g'
script[errors]="
	EINVAL pool 1M none; EINVAL pool 0; EINVAL pool 1M flags 8; EINVAL pool 1M page 4096
	EINVAL pool 1M node 1023; EINVAL pool 1M node 0x80000000
	ENOMEM pool 0x200000000000; ENOMEM pool 0xffffffffffffffff
	g=pool 1M later 0; destroy g; EINVAL pool 1M later 1
	g=pool 1M node 0; o=pool 1M; none=at 0
	EINVAL take g 1M 65; EINVAL take none 1M; ENOMEM take g 100M; EINVAL take g 64 3
	! take g 0xffffffffffffffff; ! take g 0xffffffffffffffc1 64
	$(for bit in {45..63}; do echo "ENOMEM take g 64 $((1 << bit))"; done)
	a=take g 0 1; give g a; a=take g 100000 1M
	EINVAL give o a; EINVAL give g a+1; EINVAL give g a+65536; m=malloc 10; EINVAL give g m
	give g a; EINVAL give g a; give g none; destroy none; destroy g; destroy o"
# Those that touch are gone when it is made; it is everybody's.
script[pool-threads]='
	note; g=pool 384M threads 4 grows; is +threads = 0; destroy g
	g=pool 1M threads 4 grows
	4 threads 5000 times: a=take g 64+?20; fill a:64 #; b=take g 64+?20; fill b:64 @; c=take g 64+?20; fill c:64 7; holds a:64 #; give g a; d=take g 64+?20; fill d:64 #; holds c:64 7; give g c; holds b:64 @; holds d:64 #; give g d; give g b
	destroy g'
# A child has the slices, and is refused all else.
script[forked]='
	g=pool 1M; s=take g 64; fill s 1
	beside: a=take g 64; give g a
	beside: a=take g 64; give g a
	100 children: holds s 1; fill s 2; ENOTSUP take g 64; ENOTSUP pool 1M; ENOTSUP give g s; ENOTSUP destroy g
	end
	holds s 1; give g s; destroy g'
# Ends the process.
script[freed]='g=pool 1M; a=take g 1000; b=part a+64; free b'
script[gigantic]='
	g=pool 1M page 1G; a=take g 1G; resident a; give g a; destroy g
	g=pool 1M page 2M; take g 2M'

# --- beside children ---

# forking [init] [early] [apart]: parent and child write what the child has inherited, and use their heaps, at the
# same time; init: after ibv_fork_init(); early: with a child before there is anything to register; apart: the child
# does not touch registered memory, which it may have lost.
forking() {
	local heap='' most shared='holds a 500; fill b 9; free a b; a=aligned 4K 303104; b=aligned 4K 303104; fill a 500;'

	for most in 700 50000 4000000; do
		heap+="h=malloc 1+#*7919%$most; fill h 7; realloc h 2+#*15838%$((2 * most)); holds h:1+#*7919%$most 7; free h;"
	done
	[[ " $* " != *' apart '* ]] || shared=''
	[[ " $* " != *' early '* ]] || echo "1 children: $heap"
	[[ " $* " != *' init '* ]] || echo fork-init
	echo "p=pd; a=aligned 4K 303104; b=aligned 4K 303104; x=reg a; y=reg b
		60 times: i#=malloc ?20; fill i# 1000
		write x y; fill a 500
		child: $shared holds i#%60 1000+#/60; fill i#%60 7; free i#%60; i#%60=malloc ?20; fill i#%60 1001+#/60; $heap
		60 times: fill i# 7; write x y; $heap holds i# 7
		sleep 1000
		end
		60 times: holds i# 7
		write x y"
	for most in spawn vfork popen system; do
		echo "run $most; write x y"
	done
	echo 'dereg x y; unqp; dealloc p'
}

# --- with the adapters of test/lab/providers ---

# regions KIND plain|dlsym|fork|direct: what becomes of memory regions there, to be printed.
regions() {
	local rights find='' direct='' child='touch p:1M; '

	[ "$2" != dlsym ] || find='find 240'
	[ "$2" != fork ] || find=fork-init child=''
	[ "$2" != direct ] || direct=direct
	echo "$find; c=open $1 $direct; d=pd; p=aligned 4K 8M; touch p"
	for rights in 0 l r lw lwr lax lb lz lo lh w; do
		echo "x=reg p+1048476:2M $rights; ask x $rights; dereg x"
	done
	cat <<- END
		s=malloc 100; touch s; x=reg s l; ask x l; dereg x; free s
		x=reg p:4K; ask x; dereg x; x=reg p+4095:1; ask x; dereg x; x=reg p; ask x; dereg x
		s=at static; x=reg s:4K; ask x; dereg x; s=at stack; x=reg s:4K; ask x; dereg x
		x=reg p:0; dereg x; s=at 0; x=reg s:0xffffffffffffffff lo; dereg x
		s=at 0x10000; x=iova p:1M 0x10000; ask x lwr s:1M; dereg x
		m=map 1M
		4 times: touch m; x=reg m; ask x; dereg x; over m
		x=reg m; over m; serves x d; dereg x; free m
		100 times: x#=reg p+?20:?20; ask x#
		100 times: dereg x#*7%100
		4 threads 50 times: a=malloc ?20; touch a; x=reg a; ask x; dereg x; realloc a ?21; touch a; x=reg a; ask x; dereg x; free a
		x=reg p:1M; y=reg p:1M; o=pd; serves x o
		use d; rereg x to p+2M:1M; is-of x p+2M:1M; ask x; ask x lwr p:1M; ask y
		rereg x rights l; ask x l; ask x
		rereg x pd o; ask x l; use o; is-of x p:1M
		s=at 0; rereg x to s:1M; dereg y; dereg x; dealloc o
		e=open $1 $direct; f=pd; x=reg p:1M; dealloc f; ask x; reg p+1M:1M l; close e
		e=open $1 $direct; f=pd; x=reg p:1M; ask x
		1 children: ${child}a=malloc 1M; free a
		touch p:1M; ask x; dereg x; dealloc f; close e
		use d; dealloc d; close c
	END
	[ "$2" = fork ] || echo "c=open $1; s=at 4096; x=reg s:4K; ask x" # libibverbs' madvise refuses it, or the kernel
}

# The adapter goes while two threads register, and comes back. What keys serve takes no call. Print it.
fake_rdma=/sys/module/fake_rdma/parameters
script[unplug]="
	c=open irdma; p=pd; a=malloc 1M; x=reg a; dereg x; m=map 4K
	beside: h=malloc ?20; touch h; ?EIO z=reg h; ? dereg z; free h
	beside: h=malloc ?20; touch h; ?EIO z=reg h; ? dereg z; free h
	sleep 500; tell $fake_rdma/unplug irdma; reg m; reg a
	end
	2 threads 100 times: h=malloc 1M; EIO reg h; free h
	dealloc p; close c
	tell $fake_rdma/plug irdma; open irdma; p=pd; x=reg a; dereg x; dealloc p"
# Then the library registers more than a request again: before long a key of one page serves all of the block.
script[plugged]="
	c=open irdma; p=pd; a=malloc 1M; x=reg a; dereg x
	tell $fake_rdma/unplug irdma; dealloc p; close c; tell $fake_rdma/plug irdma
	open irdma; p=pd; a=malloc 32M; touch a
	50 times: x=reg a+16M:4K; dereg x; sleep 100
	x=reg a+16M:4K; ask x lwr a; dereg x; dealloc p"

# Contexts that end while their heap is registered, by a function that dlsym() has found.
script[closing]='
	20 times: find 0; c=open mlx5; d=pd; a=malloc 16M; touch a; x=reg a:4K; ask x; x=reg a+2M:4K; ask x; x=reg a+4M:4K; ask x; x=reg a+6M:4K; ask x; x=reg a+8M:4K; ask x; sleep ?4; find 128; close c; free a'
