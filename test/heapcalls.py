#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""heapcalls.py TRACE BLOCKS: what in a trace gives heap memory back.

TRACE is strace's output (munmap, madvise, mremap, brk, mmap, mprotect), BLOCKS has
"address size" of every block the program held. The heap is those blocks and, where
the trace shows one, the reserved range of addresses. Prints a line for each call
that unmaps, advises, moves, replaces or protects a part of it or lowers the break,
and for a block outside the reserved range. Prints nothing when all is well.
"""
import re
import sys

CALL = re.compile(r"(?:\d+ +)?(\w+)\((.*)$")
RESULT = re.compile(r"= (0x[0-9a-f]+)$")
TIB = 1 << 40
KEEPING = ("MADV_HUGEPAGE", "MADV_NOHUGEPAGE", "MADV_DONTDUMP", "MADV_DODUMP")


def read_calls(path):
    for line in open(path):
        call = CALL.match(line)
        if call:
            arguments = re.split(r", |\)| <unfinished", call[2])
            result = RESULT.search(line)
            yield line.strip(), call[1], arguments, result and int(result[1], 16)


def read_blocks(path):
    for line in open(path):
        start, size = line.split()
        yield int(start, 16), int(start, 16) + int(size)


def find_reserve(calls):
    for _, name, arguments, result in calls:
        if name == "mmap" and arguments[2] == "PROT_NONE" and int(arguments[1]) >= TIB:
            return result, result + int(arguments[1])
    return None


def gives_back(name, arguments):
    """Whether this call takes memory from the range its first two arguments name."""
    if name == "mmap":
        return "MAP_FIXED" in arguments[3].split("|")
    if name == "mprotect":
        return arguments[2] != "PROT_READ|PROT_WRITE"
    if name == "madvise":
        return arguments[2] not in KEEPING
    return name in ("munmap", "mremap")


def main(trace, blocks):
    calls = list(read_calls(trace))
    held = list(read_blocks(blocks))
    reserve = find_reserve(calls)
    heap = held + [reserve] if reserve else held
    end_of_data = 0
    for line, name, arguments, result in calls:
        if name == "brk":
            if result and result < end_of_data:
                print(line)
            end_of_data = result or end_of_data
        elif gives_back(name, arguments) and arguments[0] != "NULL":
            start, end = int(arguments[0], 16), int(arguments[0], 16) + int(arguments[1])
            if any(start < stop and first < end for first, stop in heap):
                print(line)
    for start, end in held:
        if not reserve or start < reserve[0] or end > reserve[1]:
            print(f"block outside the reserved range: {start:#x}")


main(*sys.argv[1:])
