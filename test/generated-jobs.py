#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Totals of jobs by their reports, compared with what was there.

    generated-jobs.py LIBRARY PINALLOC MEMBER AT-ONCE SEED...

For each seed draws a job: how many ranks, what starts them (a shell, a debugger), when each takes memory and how much,
what they share, what they fork, start and execute, which end, are killed, begin again or still run when the report is
read, and which other runs were in the same directory before, or are beside it. Ten times a second reads Pss of all
processes from /proc, and what each says that it has in use. Prints a row for each total: seed, shape, total, what was
printed, what there was; "WRONG" where they differ by more than a tenth. So many jobs run at once. Each leaves its
reports in a directory with the seed's name.
"""

import concurrent.futures
import json
import mmap
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import time

LIBRARY, PINALLOC, MEMBER = map(os.path.abspath, sys.argv[1:4])
MIB = 1 << 20
MOMENT = .25  # seconds, at least
ENTRY = struct.Struct("QQQQ")
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}


ENTRIES = 64

# What a rank runs under. Of what a debugger and Python have in use themselves nothing is known.
WRAPPERS = {
    "alone": [], "sh": ["bash", "-c", '"$@"; true', "sh"], "pipe": ["bash", "-c", '"$@" | tail -n 1; true', "sh"],
    "dash": ["dash", "-c", '"$@"; true', "sh"], "shells": ["bash", "-c", "sh -c '\"$@\"; true' sh \"$@\"; true", "sh"],
    "exec": ["bash", "-c", 'exec "$@"', "sh"], "env": ["env", "A=B"], "nice": ["nice"], "time": ["/usr/bin/time"],
    "numactl": ["numactl", "--interleave=all"], "timeout": ["timeout", "300"],
    "gdb": ["gdb", "-batch", "-ex", "run", "--args"],
    "python": [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:], close_fds=False)"]}


class Run:
    """What a launcher starts at once."""

    def __init__(self, job, shape, n, ends, last, name, program="member"):
        """Of each rank there are its steps, and how it ends: "exit", "kill" or "run"."""
        self.program = f"{job}/{program}"
        if not os.path.exists(self.program):
            os.symlink(MEMBER, self.program)
        self.most, self.moment, self.last, self.truths, self.processes = [0, 0], 0, 0, [], []
        self.job, self.shape, self.n, self.looks = job, shape, n, []
        self.window = os.memfd_create("window")
        os.truncate(self.window, shape.shared_mib * MIB)
        self.ends = []
        self.names = {"launcher": {"PMIX_NAMESPACE": name}, "pbs": {"PBS_JOBID": "77.head"}, "lsf": {"LSB_JOBID": "77"},
                      "slurm": {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "8"}, "": {}}[shape.id]
        for rank in range(n):
            end, moment, words = shape.steps(rank, ends, last)
            self.last = max(self.last, moment)
            self.start(rank, end, words)

    def start(self, rank, end, words):
        """Starts a process of that rank."""
        self.ends.append(end)
        truth = os.memfd_create("truth")
        os.truncate(truth, MIB)
        self.truths.append(mmap.mmap(truth, MIB))
        struct.pack_into("Q", self.truths[-1], ENTRY.size - 8, self.moment)
        env = dict(os.environ, LD_PRELOAD=LIBRARY, PINALLOC_REPORT=f"{self.job}/{self.shape.path}", PMI_RANK=str(rank),
                   PMI_SIZE=str(self.n), **self.names)
        with open(f"{self.job}/said", "ab") as said:
            self.processes.append(subprocess.Popen(
                [*WRAPPERS[self.shape.wrapper], self.program, str(truth), str(self.window), *words], env=env, stdout=said,
                stderr=said, pass_fds=(truth, self.window)))
        os.close(truth)

    def again(self):
        """Kills the last rank, and starts it again."""
        self.kill(self.n - 1)
        self.start(self.n - 1, "run" if self.ends[-1] != "exit" else "exit",
                   self.shape.steps(self.n - 1, "run" if self.ends[-1] != "exit" else "exit", 0, self.moment)[2])
        self.ends[self.n - 1] = "gone"

    def entries(self, truth):
        """Of its processes: entry, process and bytes in use."""
        for i in range(ENTRIES):
            pid, n_bytes, awaited, _ = ENTRY.unpack_from(truth, ENTRY.size * i)
            if pid:
                yield i, pid, n_bytes, awaited

    def settle(self):
        """Whether all wait for the next moment."""
        return all(any(self.entries(truth)) or process.poll() is not None
                   for truth, process in zip(self.truths, self.processes)) and all(
                       awaited > self.moment or not is_there(pid)
                       for truth in self.truths for _, pid, _, awaited in self.entries(truth))

    def look(self):
        """Notes what it has now. Returns what is in use and in memory."""
        in_use, seen, row = 0, set(), {}
        for k, (truth, process) in enumerate(zip(self.truths, self.processes)):
            seen |= descendants(process.pid)
            for i, pid, n_bytes, _ in self.entries(truth):
                if is_there(pid):
                    seen.add(pid)
                    in_use += n_bytes
                    row[k, i] = n_bytes
        self.looks.append(row)
        now = [in_use, sum(map(pss_of, seen))]
        self.most = [*map(max, zip(self.most, now))]
        return now

    def main_looks(self):
        """At each look what the ranks had: of each the program that used most at once, and was not forked."""
        most = {}
        for row in self.looks:
            for (k, i), n_bytes in row.items():
                if not 1 <= i <= 32:
                    most[k, i] = max(n_bytes, most.get((k, i), 0))
        best = {}
        for (k, i), n_bytes in most.items():
            rank = k if k < self.n else self.n - 1
            best[rank] = max(best.get(rank, (-1, ())), (n_bytes, (k, i)))
        return [sum(row.get(key, 0) for _, key in best.values()) for row in self.looks]

    def step(self):
        """Lets the next moment come."""
        self.moment += 1
        for truth in self.truths:
            struct.pack_into("Q", truth, ENTRY.size - 8, self.moment)

    def kill(self, k):
        """Kills a rank's processes, but what it runs under."""
        for _, pid, _, _ in self.entries(self.truths[k]):
            if is_there(pid):
                os.kill(pid, 9)
        self.processes[k].wait()

    def end(self, how):
        """Waits for the ranks that end so, or kills them, and their children."""
        for k, end in enumerate(self.ends):
            if end == how == "exit":
                self.processes[k].wait()
                while any(is_there(pid) for _, pid, _, _ in self.entries(self.truths[k])):
                    time.sleep(.02)
            elif end == how:
                self.kill(k)


def is_there(pid):
    """Whether a process runs."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as text:
            return text.read().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


def has_library(pid, known={}):
    """Whether it has loaded the library, which stays."""
    if pid not in known:
        with open(f"/proc/{pid}/maps", "rb") as text:
            if b"libpinalloc" in text.read():
                known[pid] = True
    return pid in known


def descendants(pid):
    """Processes that a process started, and have the library, with this one."""
    found, waiting = set(), [pid]
    while waiting:
        pid = waiting.pop()
        try:
            found |= {pid} if has_library(pid) else set()
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as text:
                waiting += map(int, text.read().split())
        except OSError:
            pass
    return found


def pss_of(pid):
    """Bytes; 0 if there is no such process."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as text:
            return int(re.search(r"^Pss: *(\d+)", text.read(), re.MULTILINE)[1]) << 10 if pid else 0
    except (OSError, TypeError):
        return 0


class Shape:
    """What a seed stands for."""

    def __init__(self, seed):
        draw = self.draw = random.Random(seed)
        self.n = draw.choice((2, 3, 4, 8, 16, 32))
        self.most_mib = draw.choice((300, 1000)) // self.n
        self.span = 10 if seed % 25 == 0 else draw.choice((0, 1, 2))
        self.end = ("exit", "kill", "run", "mixed")[seed % 4]
        self.shared = draw.choice(("", "window", "fork"))
        self.shared_mib = 2048 if self.shared == "window" and self.n < 5 and draw.random() < .2 else draw.choice((64, 256))
        self.children = draw.choice((1, 4, 32) if self.shared == "fork" else (0, 0, 1, 8))
        self.child_mib = draw.choice((20, 70)) if self.children < 32 else 20
        # In this order so that each kind comes in forty seeds in a row.
        names = [name for name, words in WRAPPERS.items() if not words or shutil.which(words[0])]
        self.wrapper = names[seed // 2 % len(names)]
        self.before = [[], [("exit", 1)], [("kill", 1)], [("exit", 2)], [("kill", .5)], [("kill", 1), ("exit", 1), ("kill", 2)],
                       []][seed // 4 % 7]
        self.id = ("", "launcher", "pbs", "lsf", "slurm")[seed % 5]
        self.beside = 0 if self.before else draw.choice((0, 0, 1, .5))
        self.again = not self.beside and self.n > 2 and self.end != "exit" and draw.random() < .3
        self.helpers = draw.choice((0, 0, 0, 1, 6))
        self.helper_mib = draw.choice((3, 30, 100))
        self.chain = draw.choice((0, 0, 0, 2))
        self.outlived = self.shared == "fork" and draw.random() < .5
        self.path = draw.choice(("%r.json", "%r.json", "%p.json", "%h.%r.%p.json"))
        if self.n * (self.helpers + self.chain) > 24:
            self.helpers = self.chain = 0
        # Of runs that were all killed nothing says whether they ran at once, nor, without names, of which of two that
        # did a rank is, if the other's was killed.
        if self.end == "kill" and (self.beside or self.again):
            self.end = "mixed"
        if self.end == "mixed" and self.beside == 1 and self.id != "launcher":
            self.end = "run"
        self.most_mib //= 1 + bool(self.beside)

    def __str__(self):
        return " ".join(filter(None, (
            f"{self.n} of {self.most_mib} MiB", self.wrapper, self.end, f"over {self.span} s",
            self.shared and f"{self.shared_mib} MiB by {self.shared}",
            self.children and f"{self.children} forked {self.child_mib} MiB", self.outlived and "outlived",
            self.helpers and f"{self.helpers} helpers {self.helper_mib} MiB", self.chain and "chain",
            *(f"after {how}{size}" for how, size in self.before), self.beside and f"beside {self.beside}",
            self.again and "again", self.id, self.path)))

    def size(self, part):
        """Ranks of another run."""
        return max(1, int(self.n * part))

    def begin(self, rank, how, at):
        """What a rank starts."""
        draw, words = self.draw, []
        for child in range(1, self.children + 1 if not rank else 1):
            until = draw.choice((3, 5)) if not self.outlived else 9
            words += [f"c{child}", f"m{self.child_mib}", f"@{at + until}" if how == "exit" else "k", ","]
        for helper in range(40, 40 + self.helpers):
            words += [f"{draw.choice('hp')}{helper}", f"m{self.helper_mib}", f"@{at + 5}" if how == "exit" else "k", ","]
        return words

    def steps(self, rank, ends, last, now=0):
        """How a rank ends, its last moment, and steps. All map a window at once, as MPI does. Then memory is taken at
        even moments, and goes at odd ones."""
        draw = self.draw
        how = ends if ends != "mixed" else draw.choice(("exit", "kill", "run")) if rank else "exit"
        at = now + 2 * draw.randint(0, last)
        words = [f"@{now + 1}", *([f"s{self.shared_mib}"] if self.shared == "window" else []), f"@{at + 2}",
                 *([f"m{self.shared_mib}"] if self.shared == "fork" and not rank else []),
                 f"m{draw.randint(4, 20)}", f"m{draw.randint(self.most_mib // 4, self.most_mib)}",
                 *self.begin(rank, how, at)]
        if draw.random() < .3:
            words += [f"@{at + 3}", "d", f"@{at + 4}", f"m{draw.randint(4, 40)}"]
        end = at + 7 if how == "exit" and draw.random() < .5 or self.outlived else now + 2 * last + 9
        for program in range(50, 50 + self.chain):
            words += [f"@{end}", f"e{program}", f"@{end + 1}", f"m{draw.randint(self.most_mib // 4, self.most_mib)}"]
            end += 2
        last_words = [f"@{end}"] if self.outlived and not rank else [f"@{end}", "w"]
        return how, end + 4 * self.outlived, words + (last_words if how == "exit" else ["k"])


def watch(runs, most, n_moments):
    """For that many moments, each until all has come to rest, samples what there is."""
    for _ in range(n_moments):
        for run in runs:
            run.step()
        until, n_settled = time.monotonic() + MOMENT, 0
        while time.monotonic() < until or n_settled < 2:
            n_settled = n_settled + 1 if all(run.settle() for run in runs) else 0
            # Of processes that change there is no moment: some are seen before, some after.
            if n_settled > 1:
                most[:] = map(max, zip(most, map(sum, zip(*(run.look() for run in runs)))))
            time.sleep(.1)


def size(text):
    """A size, and half of its last digit."""
    number, unit = text.split()
    return float(number) * UNITS[unit], .05 * UNITS[unit]


def with_limit(job, limit):
    """In the reports and records of the job: of the machine's memory, and no control group's."""
    for name in filter(re.compile(r"\.(json|running)$").search, os.listdir(job)):
        with open(f"{job}/{name}", "r+b") as file:
            text = file.read()
            for key, value in (b"ram", b"%d" % limit), (b"cgroup_limit", b"null"), (b"cgroup_high", b"null"):
                text = re.sub(b'(?<="' + key + b'_bytes":)[^,}]*', lambda old: value.ljust(len(old[0])), text)
            file.seek(0)
            file.write(text)


def rows(shape, job, runs, most):
    """Of the totals: name, printed, sampled, what may be lost in print."""
    limit = int(most[1] / shape.draw.choice((.3, .7, 1.5)))
    with_limit(job, limit)
    printed = subprocess.run([PINALLOC, "report", "--json", job], capture_output=True, text=True, check=False)
    merged = json.loads(printed.stdout)
    text = subprocess.run([PINALLOC, "report", job], capture_output=True, text=True, check=False).stdout
    yield "ranks", sum(run.n for run in runs), sum(run["ranks"] for run in merged["runs"]), 0
    yield "nranks", sum(run.n for run in runs), merged["nranks"], 0
    yield "named member", bool(re.search("^pinalloc: member, .* rank", text, re.MULTILINE)), 1, 0
    host = merged["hosts"][0]["memory"]
    yield "host resident", host["rss_peak_bytes"], most[1], 0
    known = shape.wrapper not in ("gdb", "python")
    if known:
        yield "host in use", host["live_peak_bytes"], most[0], 0
    yield "runs", len(merged["runs"]), len(runs), 0
    for run, is_printed in zip(runs, merged["runs"]):
        if known:
            yield "run in use", is_printed["live_peak_bytes"], run.most[0], 0
        yield "run resident", is_printed["rss_peak_bytes"], run.most[1], 0
    found, lost = size(re.search("the ([0-9.]+ [KMG]?i?B) in use at", text)[1])
    n_looks = min(len(run.looks) for run in runs)
    yield "text in use", found, max(map(sum, zip(*(run.main_looks()[-n_looks:] for run in runs)))), lost
    found = re.search("(OVER|Nearest|No limit).*machine's memory, ([0-9]+) %", text)
    near = 100 * most[1] / limit
    yield "text share of limit, %", int(found[2]) if found else -1, near, .5
    yield "verdict", {"OVER": 2, "Nearest": 1, "No limit": 0}.get(found[1] if found else "", -1), (near > 50) + (near > 100), 0


def check(seed):
    """Runs a job, and gives its rows."""
    shape, most, runs, last = Shape(seed), [0, 0], [], 0
    job = os.path.abspath(str(seed))
    os.mkdir(job)
    for i, (how, part) in enumerate(shape.before):
        runs = [Run(job, shape, shape.size(part), how, 1, f"before{i}", f"earlier{i}" if seed % 2 else "member")]
        watch(runs, most, runs[0].last + 1)
        runs[0].end(how)
        time.sleep(.2)
    last, most = round(shape.span / MOMENT / 2), [0, 0]
    runs = [Run(job, shape, shape.n, shape.end, last, "first")]
    if shape.beside:
        watch(runs, most, 2)
        runs.append(Run(job, shape, shape.size(shape.beside), "exit" if shape.end == "exit" else "run", last, "second"))
    if shape.again:
        watch(runs, most, 4)
        runs[0].again()
    watch(runs, most, max(run.last for run in runs) + 8)
    for run in runs:
        run.end("exit")
        run.end("kill")
    try:
        return seed, shape, [*rows(shape, job, runs, most)]
    finally:
        for run in runs:
            run.end("run")


def main():
    """Prints what the page above says."""
    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(int(sys.argv[4])) as pool:
        for seed, shape, found in pool.map(check, map(int, sys.argv[5:])):
            for name, printed, sampled, lost in found:
                is_wrong = abs(printed - sampled) > sampled / 10 + lost
                wrong += is_wrong
                unit = MIB if printed > 1000 or sampled > 1000 else 1
                print(f"{seed:4}  {shape!s:90}  {name:22} {printed / unit:7.0f} {sampled / unit:7.0f} "
                      f"{'  WRONG' if is_wrong else ''}", flush=True)
    sys.exit(wrong > 0)


main()
