#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Prints of each system call that a binary makes by number, through libc's syscall() or by itself,
the function that makes it and the number: one line for each value that the number may have, "?" if
that is not a constant, or not found. For x86-64 and arm64.

  usage: test/syscalls.py FILE
"""
import re
import subprocess
import sys

BY_LIBC = re.compile(r"(?:call|jmp|bl|b) .*<syscall@plt>$")
BY_ITSELF = re.compile(r"(?:syscall|svc\s.*)$")
# What sets the register that has the number then, and what sets it to a constant.
FIRST = re.compile(r"(?!cmp|test|push|call|j)\w+ .*\b[er]di$|(?!cmp|str|stp|cb|tb)\w+\s+[xw]0,")
NUMBER = re.compile(r"(?!cmp|test|push|call|j)\w+ .*\b[er]ax$|(?!cmp|str|stp|cb|tb)\w+\s+[xw]8,")
ZERO = re.compile(r"xor\s+%([er][da][ix]),%\1$|mov\s+[wx][08], [wx]zr$")
CONSTANT = re.compile(r"mov\s+\$(0x[0-9a-f]+),|mov[z]?\s+[xw][08], #(0x[0-9a-f]+)$")
# What does not go on with the next instruction, what goes elsewhere, and what may set any register.
ENDS = re.compile(r"(?:jmp|ret|b|br|ud2|hlt)\b(?!\.)")
GOES = re.compile(r"(?:j\w+|b|b\.\w+|cbn?z\s.*|tbn?z\s.*)\s+(?:\w+, )*([0-9a-f]+) <")
CALLS = re.compile(r"(?:call|blr?)\b")


class Function:
    def __init__(self, name):
        self.name, self.texts, self.at, self.sources = name, [], {}, {}

    def add(self, address, text):
        goes = GOES.match(text)
        if goes:
            self.sources.setdefault(int(goes[1], 16), []).append(len(self.texts))
        self.at[len(self.texts)] = address
        self.texts.append(text)

    def before(self, i):
        """The instructions after which the one at i may be executed."""
        found = list(self.sources.get(self.at[i], []))
        if i and not ENDS.match(self.texts[i - 1]):
            found.append(i - 1)
        return found

    def numbers(self, call, register):
        found, seen, todo = set(), set(), [call]
        while todo:
            reached = self.before(todo.pop())
            if not reached:
                found.add("?")
            for i in set(reached) - seen:
                seen.add(i)
                text = self.texts[i]
                constant = CONSTANT.match(text)
                if register.match(text) and ZERO.match(text):
                    found.add("0")
                elif register.match(text):
                    found.add(str(int(constant[1] or constant[2], 16)) if constant else "?")
                elif CALLS.match(text):
                    found.add("?")
                else:
                    todo.append(i)
        return sorted(found)

    def show(self):
        for i, text in enumerate(self.texts):
            if BY_LIBC.match(text) or BY_ITSELF.match(text):
                for number in self.numbers(i, FIRST if BY_LIBC.match(text) else NUMBER):
                    print(self.name, number)


def main(path):
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], check=True,
                             capture_output=True, text=True).stdout
    function = Function("?")
    for line in listing.splitlines():
        begins = re.match(r"[0-9a-f]+ <(.*)>:$", line)
        if begins:
            function.show()
            function = Function(begins[1])
        elif "\t" in line:
            address, text = line.split("\t", 1)
            function.add(int(address.strip().rstrip(":"), 16), re.sub(r"\s*(#|//) .*", "", text).strip())
    function.show()


if sys.argv[1] in ("-h", "--help"):
    print(__doc__)
else:
    main(sys.argv[1])
