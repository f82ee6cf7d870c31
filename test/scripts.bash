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
	x=reg a; unlike x y; send x y; dereg x y own
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

# --- what is registered ahead ---

# ahead KIB MIB CHANGES: blocks of this size, which begin on any page, are registered for the first time
# once nothing has been registered for a while: at most a tenth waits, and at most a quarter is registered
# twice. So they are when blocks have gone, and others have come, of up to twice the size.
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
# Behind malloc, of a registered block.
script[replaced]='
	l=malloc 8M; y=reg l; a=aligned 2M 32M; x=reg a+4M:4M; write x y; dereg x
	over a+4M:4M; x=reg a+4M:4M; write x y; dereg x'

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

# Contexts that end while their heap is registered, by a function that dlsym() has found.
script[closing]='
	20 times: find 0; c=open mlx5; d=pd; a=malloc 16M; touch a; x=reg a:4K; ask x; x=reg a+2M:4K; ask x; x=reg a+4M:4K; ask x; x=reg a+6M:4K; ask x; x=reg a+8M:4K; ask x; sleep ?4; find 128; close c; free a'
