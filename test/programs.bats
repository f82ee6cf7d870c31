#!/usr/bin/env bats
# SPDX-License-Identifier: BSD-2-Clause
# Promise: real programs behave under the library as without it.

setup() {
	load helper
	cd "$BATS_TEST_TMPDIR"
	mkdir reports
}

# alike COMMAND…: prints the same on both streams, with the same status, with the library and without.
alike() {
	local plain status_plain=0
	rm -f reports/*
	plain=$("$@" 2>&1) || status_plain=$?
	run preloaded PINALLOC_REPORT="$PWD/reports/%p.txt" "$@"
	diff <(echo "$plain") <(echo "$output") && [ "$status" -eq "$status_plain" ]
}

# same NAME COMMAND…: is alike; and a program NAME did run with the library.
same() {
	alike "${@:2}" && grep -q "^pinalloc: $1, " reports/*.txt
}

# script NAME: makes a script of standard input.
script() {
	cat > "$1"
}

@test "a shell script with pipes, subshells, arrays and here-documents works as without the library" {
	same bash bash "$top_srcdir/test/programs/faulted.sh"
}

@test "git creates, packs and reads a repository as without the library" {
	script repository <<- 'END'
		set -e
		export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
		for who in AUTHOR COMMITTER; do
			export GIT_${who}_NAME=A GIT_${who}_EMAIL=a@example.org
			export GIT_${who}_DATE='2001-01-01T00:00:00Z'
		done
		rm -rf repository.git && git init -q -b main repository.git && cd repository.git
		for i in 1 2 3 4 5; do
			seq $i 20000 > file.$i
			git add . && git commit -qm "number $i"
		done
		git gc -q && git fsck
		git log --stat --format=%H%s
	END
	same git bash repository
}

@test "gcc compiles a large file to the same object" {
	script compile <<- 'END'
		for i in {1..300}; do
			echo "int f$i(int n) { return n > $i ? n * $i + f$((i > 1 ? i - 1 : 300))(n / 2) : n; }"
		done | { seq -f 'int f%g(int);' 300; cat; } > many.c
		gcc -O2 -c many.c -o many.o && md5sum many.o
	END
	same cc1 bash compile
}

@test "g++ compiles a program that uses the standard library to the same object" {
	script program.cc <<- 'END'
		#include <algorithm>
		#include <map>
		#include <string>
		#include <vector>
		std::vector<std::string> keys(const std::map<std::string, std::vector<int>> &index)
		{
			std::vector<std::string> found;
			for (auto &entry : index)
				found.push_back(entry.first);
			std::sort(found.rbegin(), found.rend());
			return found;
		}
	END
	same cc1plus bash -c "g++ -c program.cc -o program.o && md5sum program.o"
}

@test "a C++ program with exceptions, threads and static objects works as without the library" {
	same faulted-objects "$programs/faulted-objects"
}

@test "python3 with threads, ctypes, a child and libraries works as without the library" {
	same python3 python3 "$top_srcdir/test/programs/faulted.py"
	PYTHONMALLOC=malloc same python3 python3 "$top_srcdir/test/programs/faulted.py"
}

@test "python3 with subprocesses and both kinds of multiprocessing works as without the library" {
	script processes.py <<- 'END'
		import multiprocessing, subprocess
		def square(n): return sum(i * i for i in range(n))
		if __name__ == "__main__":
		    for method in "fork", "spawn":
		        with multiprocessing.get_context(method).Pool(2) as pool:
		            print(method, pool.map(square, range(50)))
		    print(subprocess.run(["sort", "-r"], input=b"a\nc\nb\n", capture_output=True))
	END
	same python3 python3 processes.py
}

@test "perl with fork, large hashes and sorting works as without the library" {
	script program.pl <<- 'END'
		my %h = map { $_ => "x" x ($_ % 100) } 1 .. 50000;
		my @sorted = sort { length $h{$a} <=> length $h{$b} or $a <=> $b } keys %h;
		my $text = join ",", @sorted;
		print length $text, " $sorted[0] $sorted[-1] ", unpack("%32C*", $text), "\n";
		$| = 1;
		for my $i (1 .. 5) {
		    my $pid = fork // die;
		    if (!$pid) { my @a = map { "child $i" x $_ } 1 .. 500; print "$#a $i\n"; exit $i }
		    waitpid $pid, 0;
		    print $? >> 8, "\n";
		}
	END
	same perl perl program.pl
}

@test "tar, xz, sed, awk, grep and sort work in pipelines as without the library" {
	script pipeline <<- 'END'
		mkdir -p tree && seq 100000 > tree/numbers && cp /etc/services tree/ 2>&1
		tar --sort=name --mtime=@0 -c tree | xz -0 -T2 | xz -dc | md5sum
		sort -R --random-source=tree/numbers tree/numbers | sort -n --parallel=4 -S 8M |
			sed 's/7/seven/g' | awk '{ sum += length($0); n[length($0)]++ }
				END { print sum; for (i = 1; i < 20; i++) print i, n[i] }'
		find tree -type f | sort | xargs md5sum
		grep -c '[13579]$' tree/numbers
	END
	same sort bash pipeline
}

# bats test_tags=thorough
@test "Node.js with sockets, buffers, threads and a child process works as without the library" {
	script main.js <<- 'END'
		const { Worker, isMainThread, workerData, parentPort } = require('worker_threads');
		const { createHash } = require('crypto'), net = require('net');
		const { execFileSync } = require('child_process');
		const sum = data => createHash('sha256').update(data).digest('hex');

		if (!isMainThread) {
			const buffers = [];
			for (let i = 0; i < 3000; i++) buffers.push(Buffer.alloc(i * workerData, i & 255));
			parentPort.postMessage(sum(Buffer.concat(buffers)));
		} else {
			const sums = [], server = net.createServer(socket => {
				const parts = [];
				socket.on('data', part => parts.push(part));
				socket.on('end', () => socket.end(sum(Buffer.concat(parts))));
			}).listen(0, '127.0.0.1', () => {
				for (let n = 1; n <= 3; n++)
					new Worker(__filename, { workerData: n }).on('message', found => {
						const socket = net.connect({ port: server.address().port, allowHalfOpen: true });
						socket.end(Buffer.alloc(5000000 * n, found));
						socket.on('data', answer => sums[n] = found + ' ' + answer);
						socket.on('close', () => {
							if (Object.keys(sums).length < 3) return;
							console.log(sums.join('\n') + execFileSync('echo', ['a child']));
							server.close();
						});
					});
			});
		}
	END
	same node node main.js
}

# bats test_tags=thorough
@test "Java with sockets, direct buffers, threads and a child process works as without the library" {
	script Main.java <<- 'END'
		import java.io.*;
		import java.net.*;
		import java.nio.ByteBuffer;
		import java.nio.channels.*;
		import java.util.stream.*;
		import java.util.zip.CRC32;

		class Main {
			static void write(ServerSocketChannel server, int n) {
				try (SocketChannel out = SocketChannel.open(server.getLocalAddress())) {
					ByteBuffer data = ByteBuffer.allocateDirect(n * 100000);
					while (data.hasRemaining()) data.put((byte) (data.position() * n));
					for (data.flip(); data.hasRemaining();) out.write(data);
				} catch (IOException e) {
					throw new UncheckedIOException(e);
				}
			}

			static String talk(int n) {
				try (ServerSocketChannel server = ServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", 0))) {
					new Thread(() -> write(server, n)).start();
					SocketChannel in = server.accept();
					ByteBuffer buffer = ByteBuffer.allocateDirect(1 << 16);
					CRC32 crc = new CRC32();
					for (; in.read(buffer) >= 0; buffer.clear()) crc.update(buffer.flip());
					return n + " " + crc.getValue();
				} catch (IOException e) {
					throw new UncheckedIOException(e);
				}
			}

			public static void main(String[] args) throws IOException {
				System.out.println(IntStream.rangeClosed(1, 40).parallel().mapToObj(Main::talk)
					.collect(Collectors.joining("\n")));
				System.out.print(new String(new ProcessBuilder("echo", "a child").start().getInputStream().readAllBytes()));
			}
		}
	END
	same java java -Xmx256m Main.java
}

# bats test_tags=thorough
@test "Go with sockets, blocks of malloc, goroutines and a child works as without; its report has no end" {
	script main.go <<- 'END'
		package main

		// #include <stdlib.h>
		// #include <string.h>
		import "C"
		import (
			"bufio"
			"fmt"
			"hash/crc32"
			"net"
			"os/exec"
			"strings"
			"sync"
			"unsafe"
		)

		func echo(listener net.Listener) {
			for {
				connection, _ := listener.Accept()
				go func() {
					line, _ := bufio.NewReader(connection).ReadString('\n')
					fmt.Fprint(connection, strings.ToUpper(line))
					connection.Close()
				}()
			}
		}

		func ask(address string, n int) string {
			size := C.size_t(n*100000 + 1)
			block := C.malloc(size)
			C.memset(block, C.int(n), size)
			sum := crc32.ChecksumIEEE(C.GoBytes(block, C.int(size)))
			C.free(unsafe.Pointer(block))
			connection, _ := net.Dial("tcp", address)
			fmt.Fprintf(connection, "%x\n", sum)
			answer, _ := bufio.NewReader(connection).ReadString('\n')
			return answer
		}

		func main() {
			listener, _ := net.Listen("tcp", "127.0.0.1:0")
			go echo(listener)
			sums := make([]string, 50)
			var all sync.WaitGroup
			for i := range sums {
				all.Add(1)
				go func(n int) {
					sums[n] = fmt.Sprint(n, " ", ask(listener.Addr().String(), n))
					all.Done()
				}(i)
			}
			all.Wait()
			child, _ := exec.Command("echo", "a child").Output()
			fmt.Print(strings.Join(sums, ""), string(child))
		}
	END
	export GOCACHE=$PWD/cache GO111MODULE=off CGO_ENABLED=1
	go build -o talks main.go
	alike ./talks
	"$top_builddir/pinalloc" report reports/*.running | grep -F 'without a report (it was killed, or called _exit)'
}

# grown_by COUNT…: how much of the heap was touched after so many forks while another thread allocates; every
# child has allocated, and ended. Threads that wait for each other get maps, of some hundred KiB each.
grown_by() {
	local n
	grown=()
	for n; do
		run -0 preloaded PINALLOC_REPORT="$PWD/%p.json" "$programs/forks" "$n"
		[ "$output" = "$n" ]
		grown+=("$(jq .resident.heap_bytes "$PWD"/*.json)")
		rm "$PWD"/*.json
	done
	echo "touched ${grown[*]}"
	[ "${grown[1]}" -le $((grown[0] + (4 << 20))) ]
}

@test "after thousands of forks the heap has not gone on growing" {
	grown_by 100 2000
}

# bats test_tags=thorough
@test "nor after 100,000" {
	grown_by 1000 100000
}

@test "fork works while one thread flushes all streams and another allocates with a stream locked" {
	run -0 preloaded timeout $((60 * ${TIMEOUT_SCALE:-1})) "$programs/forks-and-flushes"
	[ "$output" = 0 ]
	run -0 preloaded PINALLOC_REPORT="$PWD/%p.json" timeout $((60 * ${TIMEOUT_SCALE:-1})) "$programs/forks-and-flushes"
	[ "$output" = 0 ]
}

@test "these tests notice a library that prints or changes anything, or is not loaded" {
	run ! same bash bash -c 'echo "$LD_PRELOAD"'
	run ! same bash bash -c '[ -z "$LD_PRELOAD" ]'
	library=
	run ! same bash bash -c 'echo no report'
}
