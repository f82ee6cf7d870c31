#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: what other allocators can be told, the library does, or refuses: no setting is accepted that has no
# effect, but for those of glibc that would only return memory. (symbols.bats: no other names are exported;
# malloc.bats: mallopt(); new.bats: C++; options.bats: PINALLOC_*.)

setup() {
	load helper
	cd "$BATS_TEST_TMPDIR"
}

# In the order of jemalloc(3): the name, the bytes of a value, 0 for a call without one, and the answer.
@test "each setting of jemalloc's is one that it follows here, or is refused" {
	cat > wanted <<- 'END'
		version 8 EPERM
		epoch 8 0
		background_thread 1 EPERM
		max_background_threads 8 EPERM
		config.stats 1 EPERM
		opt.retain 1 EPERM
		opt.dirty_decay_ms 8 EPERM
		thread.arena 4 0
		thread.allocated 8 EPERM
		thread.peak.reset 0 0
		thread.tcache.enabled 1 0
		thread.tcache.flush 0 0
		thread.prof.name 8 EPERM
		thread.prof.active 1 EPERM
		thread.idle 0 0
		arena.0.initialized 1 EPERM
		arena.0.decay 0 0
		arena.0.purge 0 0
		arena.4096.decay 0 0
		arena.4096.purge 0 0
		arena.0.destroy 0 EFAULT
		arena.0.dss 8 EPERM
		arena.0.dirty_decay_ms 8 EPERM
		arena.0.muzzy_decay_ms 8 EPERM
		arena.0.oversize_threshold 8 EPERM
		arena.0.retain_grow_limit 8 EPERM
		arena.0.extent_hooks 8 EPERM
		arenas.narenas 4 EPERM
		arenas.dirty_decay_ms 8 EPERM
		arenas.muzzy_decay_ms 8 EPERM
		arenas.create 8 EPERM
		prof.thread_active_init 1 EPERM
		prof.active 1 EPERM
		prof.dump 0 ENOENT
		prof.dump 8 EPERM
		prof.prefix 8 EPERM
		prof.gdump 1 EPERM
		prof.reset 0 ENOENT
		prof.reset 8 EPERM
		prof.log_start 0 ENOENT
		prof.log_stop 0 ENOENT
		stats.mutexes.reset 0 0
		experimental.hooks.install 16 EPERM
		experimental.hooks.remove 8 EPERM
		experimental.hooks.prof_backtrace 8 EPERM
		experimental.hooks.prof_dump 8 EPERM
		experimental.thread.activity_callback 16 EPERM
		experimental.utilization.query 8 EPERM
		experimental.utilization.batch_query 8 EPERM
		experimental.arenas_create_ext 16 EPERM
		experimental.batch_alloc 32 EPERM
		experimental.prof_recent.alloc_max 8 EPERM
		arena.0.nothing 8 ENOENT
		nothing 0 ENOENT
	END
	preloaded "$programs/ctl" set < wanted > said
	# Another release may lack a name.
	awk 'NR == FNR { answer[$1, $2] = $3; next } $3 != "ENOENT" && $3 != answer[$1, $2]' wanted said > others
	diff /dev/null others
	[ "$(grep -cFxf wanted said)" -ge 30 ]
	# jemalloc itself accepts more.
	run -0 env LD_PRELOAD=libjemalloc.so.2 "$programs/ctl" set <<< 'arenas.dirty_decay_ms 8 0'
	[ "$output" = 'arenas.dirty_decay_ms 8 0' ]
}

@test "arenas and caches that a program makes are jemalloc's: their blocks go when it resets or destroys them" {
	run -0 preloaded "$programs/ctl" arena
	# With jemalloc the hook runs, which aborts.
	ulimit -c 0
	run -134 env LD_PRELOAD=libjemalloc.so.2 "$programs/ctl" arena
}

# narenas N [NAME=VALUE…]
narenas() {
	run -0 preloaded "${@:2}" "$programs/ctl" opt.narenas
	[ "$output" = "$1" ]
}

@test "a limit on arenas holds, whoever's name it has" {
	rows narenas <<- 'END'
		3 MALLOC_ARENA_MAX=3
		3 GLIBC_TUNABLES=glibc.malloc.check=0:glibc.malloc.arena_max=3:glibc.malloc.tcache_count=0
		4 GLIBC_TUNABLES=glibc.malloc.arena_max=3 MALLOC_ARENA_MAX=4
		5 MALLOC_CONF=narenas:5
	END
	narenas "$(("$(nproc)" > 1 ? 4 * $(nproc) : 1))" GLIBC_TUNABLES=glibc.malloc.arena_max=
}

# whose TEXT PRELOADED…: the library says this only.
whose() {
	run -0 --separate-stderr env MALLOC_CHECK_=3 LD_PRELOAD="${*:2}" "$programs/grow" 1
	echo "$stderr"
	[[ "$(grep '^pinalloc\[' <<< "$stderr")" == $1 ]]
}

@test "the line says whose malloc answers, unless the library does in the end" {
	local debug=libc_malloc_debug.so.0 tool
	whose "pinalloc\[*\]: malloc is answered by /*/$debug: *" $debug "$library"
	whose '' "$library" $debug
	for tool in libmemusage.so $(find /usr/lib -name libheaptrack_preload.so); do
		whose '' $tool "$library"
		whose "pinalloc\[*\]: malloc is answered by /*: *" $tool libjemalloc.so.2 "$library"
	done
}
