#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Which commands scripts call that need more than the given packages.

    commands.py PACKAGE... -- SCRIPT...

A command is a word where bash expects one, or the first of a text with an option, that a program in
/usr/bin or /usr/sbin bears, outside of here-documents, which are C or Python. Prints a line for
each that neither these packages bring, nor what they depend on, nor what every Debian system has;
then the number of commands.
"""

import os
import re
import subprocess
import sys

BEFORE = r"""(?:^\s*|[|&;({`!]\s*|(?<=[\s(])["'](?=[\w.+-]+\s+-)
    |\b(?:then|do|else|if|while|until|run|exec|env|timeout|said|type\ -P|command\ -v|\w+=\S*|\d+)\s+
    |(?<=\s)--?[\w-]+\s+)+["']?"""
COMMAND = re.compile(BEFORE + r"""([\w.+-]+)(?=[\s;|&)"'`]|$)""", re.VERBOSE)


def calls(scripts):
    """The place of the first call of each command."""
    found = {}
    for script in scripts:
        end = None
        with open(script, encoding="utf-8") as text:
            for number, line in enumerate(text, 1):
                if not end and not re.match(r"\s*#|@test ", line):
                    for word in COMMAND.findall(line):
                        if word not in ("import", "from"):  # Python's
                            found.setdefault(word, f"{script}:{number}")
                if end == line.strip():
                    end = None
                elif begins := not end and re.search(r"(?<!<)<<-?\s*[\"']?([A-Z]\w*)", line):
                    end = begins[1]
    return found


def programs(names):
    """The files of those that are programs."""
    paths = {name: f"/usr/{place}/{name}" for name in names for place in ("sbin", "bin")
             if os.access(f"/usr/{place}/{name}", os.X_OK)}
    return {name: os.path.realpath(path) for name, path in paths.items()}


def installed():
    """Each installed package with its fields, and under each name that it provides."""
    known, provided = {}, {}
    with open("/var/lib/dpkg/status", encoding="utf-8") as status:
        for paragraph in status.read().split("\n\n"):
            fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
            if fields.get("Status", "").endswith(" installed"):
                known[fields["Package"]] = fields
                for name in words(fields.get("Provides", "")):
                    provided.setdefault(name[0], fields)
    return {**provided, **known}


def words(relation):
    """The names in each clause of a field such as Depends."""
    return [re.sub(r"\([^)]*\)|:\w+|\s", "", clause).split("|") for clause in relation.split(",")]


def closure(packages, known):
    """The packages, those of every system, and what they depend on: the first of alternatives."""
    todo = [names.split("|") for names in packages] + [["apt"]]
    todo += [[name] for name, fields in known.items()
             if "yes" in fields.get("Essential", "") or fields.get("Priority") == "required"]
    done = set()
    while todo:
        fields = next((known[name] for name in todo.pop() if name in known), None)
        if fields and fields["Package"] not in done:
            done.add(fields["Package"])
            todo += words(fields.get("Depends", "")) + words(fields.get("Pre-Depends", ""))
    return done


def owners(paths):
    """The packages of each file, which may be known by its name before /usr was merged."""
    lines = subprocess.run(["dpkg-query", "-S", *paths, *(path[4:] for path in paths)],
                           capture_output=True, text=True, check=False).stdout.splitlines()
    return {path: {re.sub(":.*", "", name) for line in lines if line.endswith((": " + path, ": " + path[4:]))
                   for name in line.rsplit(": ", 1)[0].split(", ")} for path in paths}


def main():
    """Prints what the page above says."""
    middle = sys.argv.index("--")
    called = calls(sys.argv[middle + 1:])
    there = programs(called)
    enough = closure(sys.argv[1:middle], installed())
    owned = owners(sorted(set(there.values())))
    for name, path in sorted(there.items()):
        if not owned[path] & enough:
            print(f"{called[name]}: {name} is of {' '.join(sorted(owned[path])) or 'no package'}")
    print(len(there))


main()
