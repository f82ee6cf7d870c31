#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Totals of jobs by their reports, compared with what was there.

    generated-jobs.py LIBRARY PINALLOC MEMBER AT-ONCE SEED...

For each seed draws a job: how many ranks, when each takes memory and how much, what they share, what they fork,
which end, are killed or still run when the report is read, whether another run was in the same directory before, or is
beside it. Ten times a second reads Pss of all processes from /proc, and what each says that it has in use. Prints a row
for each total: seed, shape, total, what was printed, what there was; "WRONG" where they differ by more than a tenth.
So many jobs run at once. Each leaves its reports in a directory with the seed's name.
"""

import concurrent.futures
import json
import mmap
import os
import random
import re
import struct
import subprocess
import sys
import time

LIBRARY, PINALLOC, MEMBER = map(os.path.abspath, sys.argv[1:4])
MIB = 1 << 20
MOMENT = .25  # seconds, at least
ENTRY = struct.Struct("QQQQ")
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}


class Run:
    """What a launcher starts at once."""

    def __init__(self, job, shape, ends, last, name):
        """Of each rank there are its steps, and how it ends: "exit", "kill" or "run"."""
        self.most, self.has_settled, self.moment, self.last, self.truths, self.processes = [0, 0, 0], False, 0, 0, [], []
        self.window = os.memfd_create("window")
        os.truncate(self.window, shape.shared_mib * MIB)
        self.ends = []
        for rank in range(shape.n):
            end, moment, words = shape.steps(rank, ends, last)
            self.ends.append(end)
            self.last = max(self.last, moment)
            truth = os.memfd_create("truth")
            os.truncate(truth, MIB)
            self.truths.append(mmap.mmap(truth, MIB))
            env = dict(os.environ, LD_PRELOAD=LIBRARY, PINALLOC_REPORT=f"{job}/%r.json", PMI_RANK=str(rank),
                       PMI_SIZE=str(shape.n), **({"PMIX_NAMESPACE": name} if shape.has_id else {}))
            self.processes.append(subprocess.Popen([MEMBER, str(truth), str(self.window), *words], env=env,
                                                   pass_fds=(truth, self.window)))
            os.close(truth)

    def look(self):
        """What it has now: in use by ranks, by all its processes, and in memory. Notes whether all wait."""
        now, self.has_settled = [0, 0, 0], all(truth[0] or truth[1] for truth in self.truths)
        for truth in self.truths:
            for i in range(33):
                pid, n_bytes, awaited, _ = ENTRY.unpack_from(truth, ENTRY.size * i)
                n = pss_of(pid)
                if n:
                    self.has_settled &= awaited > self.moment
                    now = [now[0] + (0 if i else n_bytes), now[1] + n_bytes, now[2] + n]
        return now

    def step(self):
        """Lets the next moment come."""
        self.moment += 1
        for truth in self.truths:
            struct.pack_into("Q", truth, ENTRY.size - 8, self.moment)

    def end(self, how):
        """Waits for the ranks that end so, or kills them, and their children."""
        for truth, process, end in zip(self.truths, self.processes, self.ends):
            if end == how:
                for i in range(33 if how != "exit" else 0):
                    pid = ENTRY.unpack_from(truth, ENTRY.size * i)[0]
                    if pss_of(pid):
                        os.kill(pid, 9)
                process.wait()


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
        self.span = 10 if seed % 5 == 0 else draw.choice((0, 1, 2, 4))
        self.end = ("exit", "kill", "run", "mixed")[seed % 4]
        self.shared = draw.choice(("", "window", "fork"))
        self.shared_mib = 2048 if self.shared and self.n < 5 and draw.random() < .3 else draw.choice((64, 256))
        self.children = draw.choice((1, 4, 32) if self.shared == "fork" else (0, 0, 1, 8))
        self.child_mib = draw.choice((20, 70))
        self.before = ("", "exit", "", "kill")[seed // 4 % 4]
        self.has_id = draw.random() < .5
        self.beside = not self.before and draw.random() < .3
        self.has_id |= self.beside
        # Of two runs that were both killed nothing says whether they ran at once.
        if self.end == "kill" and (self.beside or (self.before == "kill" and self.has_id)):
            self.end = "mixed"
        self.most_mib //= 1 + self.beside

    def __str__(self):
        return " ".join(filter(None, (
            f"{self.n} of {self.most_mib} MiB", f"over {self.span} s", self.end,
            self.shared and f"{self.shared_mib} MiB by {self.shared}",
            self.children and f"{self.children} forked {self.child_mib} MiB",
            self.before and f"after {self.before}", self.beside and "two", self.has_id and "id")))

    def steps(self, rank, ends, last):
        """How a rank ends, its last moment, and steps. All map a window at once, as MPI does. Then memory is taken at
        even moments, and goes at odd ones."""
        draw = self.draw
        how = ends if ends != "mixed" else draw.choice(("exit", "kill", "run")) if rank else "exit"
        at = 2 * draw.randint(0, last)
        words = ["@1", *([f"s{self.shared_mib}"] if self.shared == "window" else []), f"@{at + 2}",
                 *([f"m{self.shared_mib}"] if self.shared == "fork" and not rank else []),
                 f"m{draw.randint(4, 20)}", f"m{draw.randint(self.most_mib // 4, self.most_mib)}"]
        for child in range(1, self.children + 1 if not rank else 1):
            words += [f"c{child}", f"m{self.child_mib}", f"@{at + draw.choice((3, 5))}" if how == "exit" else "k", ","]
        if draw.random() < .3:
            words += [f"@{at + 3}", "d", f"@{at + 4}", f"m{draw.randint(4, 40)}"]
        end = at + 7 if how == "exit" and draw.random() < .5 else 2 * last + 9
        return how, end, words + ([f"@{end}", "w"] if how == "exit" else ["k"])


def watch(runs, most, n_moments):
    """For that many moments, each until all has come to rest, samples what there is."""
    for _ in range(n_moments):
        for run in runs:
            run.step()
        until, n_settled = time.monotonic() + MOMENT, 0
        while time.monotonic() < until or n_settled < 2:
            looks = [run.look() for run in runs]
            n_settled = n_settled + 1 if all(run.has_settled for run in runs) else 0
            # Of processes that change there is no moment: some are seen before, some after.
            if n_settled > 1:
                most[:] = map(max, zip(most, map(sum, zip(*looks))))
                for run, now in zip(runs, looks):
                    run.most = [*map(max, zip(run.most, now))]
            time.sleep(.1)


def size(text):
    """A size, and half of its last digit."""
    number, unit = text.split()
    return float(number) * UNITS[unit], .05 * UNITS[unit]


def with_limit(job, limit):
    """In the reports and records of the job: of the machine's memory, and no control group's."""
    for name in os.listdir(job):
        with open(f"{job}/{name}", "r+b") as file:
            text = file.read()
            for key, value in (b"ram", b"%d" % limit), (b"cgroup_limit", b"null"), (b"cgroup_high", b"null"):
                text = re.sub(b'(?<="' + key + b'_bytes":)[^,}]*', lambda old: value.ljust(len(old[0])), text)
            file.seek(0)
            file.write(text)


def rows(shape, job, runs, most):
    """Of the totals: name, printed, sampled, what may be lost in print."""
    limit = int(most[2] / shape.draw.choice((.3, .7, 1.5)))
    with_limit(job, limit)
    printed = subprocess.run([PINALLOC, "report", "--json", job], capture_output=True, text=True, check=False)
    merged = json.loads(printed.stdout)
    text = subprocess.run([PINALLOC, "report", job], capture_output=True, text=True, check=False).stdout
    yield "ranks", sum(len(run.truths) for run in runs), sum(run["ranks"] for run in merged["runs"]), 0
    host = merged["hosts"][0]["memory"]
    yield "host in use", host["live_peak_bytes"], most[1], 0
    yield "host resident", host["rss_peak_bytes"], most[2], 0
    for run, is_printed in zip(runs, merged["runs"]):
        yield "run in use", is_printed["live_peak_bytes"], run.most[1], 0
        yield "run resident", is_printed["rss_peak_bytes"], run.most[2], 0
    found, lost = size(re.search("the ([0-9.]+ [KMG]?i?B) in use at", text)[1])
    yield "text in use", found, most[0], lost
    found = re.search("(OVER|Nearest|No limit).*machine's memory, ([0-9]+) %", text)
    yield "text share of limit, %", int(found[2]) if found else -1, 100 * most[2] / limit, .5
    near = 100 * most[2] / limit
    yield "verdict", {"OVER": 2, "Nearest": 1, "No limit": 0}.get(found[1] if found else "", -1), (near > 50) + (near > 100), 0


def check(seed):
    """Runs a job, and gives its rows."""
    shape, most, runs, last = Shape(seed), [0, 0, 0], [], 0
    job = os.path.abspath(str(seed))
    os.mkdir(job)
    if shape.before:
        runs = [Run(job, shape, shape.before, 1, "before")]
        watch(runs, most, runs[0].last)
        runs[0].end(shape.before)
        time.sleep(.2)
    last, most = round(shape.span / MOMENT / 2), [0, 0, 0]
    runs = [Run(job, shape, shape.end, last, "first")]
    if shape.beside:
        watch(runs, most, 2)
        runs.append(Run(job, shape, "exit" if shape.end == "exit" else "run", last, "second"))
    watch(runs, most, max(run.last for run in runs) + 2)
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
                print(f"{seed:4}  {shape!s:60}  {name:22} {printed / unit:7.0f} {sampled / unit:7.0f} "
                      f"{'  WRONG' if is_wrong else ''}", flush=True)
    sys.exit(wrong > 0)


main()
