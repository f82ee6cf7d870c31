# SPDX-License-Identifier: BSD-2-Clause
"""The output of bench/allocators: tables with goals, a file of figures.

Results are results[benchmark][contestant], a list of figures by name, one for each round.
Of times the fastest round counts, because other load only adds to them; of memory the median."""
import collections
import csv
import statistics

STOCK = "jemalloc"
OURS = "pinalloc"
SMALL_KIB = 64 << 10  # programs below are judged by the memory they take
NOISE = 1.03
GOALS = {STOCK: 0.80, "mimalloc": 0.95, "tcmalloc": 0.95}  # processor time, all programs
START_GOAL = 1.2  # to glibc's
# Resident memory in relation to live memory, or to another contestant's; relative to STOCK in each
# row, 1 unless given.
PEAK_GOALS = {"phases-small-large": {"live": 1.2}, "phases-as-many": {"live": 1.15},
              "phases-bands": {"live": 2.0}, "sawtooth": {"live": 1.2, "glibc": 1.0},
              "growing": {"live": 1.4}, "grow": {"glibc": 1.05}, "grow-large": {"glibc": 1.05},
              "arrays": {"glibc": 1.1}, "numpy": {STOCK: 1.12}}
UNTOUCHED = 0.05
ORDINARY = "without large and start"

# A line of the file; least and most are from single rounds.
Figure = collections.namedtuple("Figure", "part benchmark contestant figure value least most"
                                          " goal met")


class Report:
    """The results, and what is to be written of them to the file."""

    def __init__(self, names, results):
        self.names = names
        self.results = results
        self.figures = []

    def values(self, row, name, figure):
        return [one[figure] for one in self.results[row.name][name] if figure in one]

    def ratios(self, row, name, figure, base=STOCK):
        return [a / max(b, 1e-3) for a, b in zip(self.values(row, name, figure),
                                                 self.values(row, base, figure))]

    def value(self, row, name, figure):
        return (min if figure.endswith("_ms") else statistics.median)(self.values(row, name, figure))

    def ratio(self, row, name, figure, base=STOCK):
        return self.value(row, name, figure) / max(self.value(row, base, figure), 1e-3)

    def geomean(self, rows, name, figure):
        return statistics.geometric_mean(max(self.ratio(row, name, figure), 1e-3) for row in rows)

    def add(self, part, benchmark, contestant, figure, values, goal="", met=""):
        self.figures.append(Figure(part, benchmark, contestant, figure, statistics.median(values),
                                   min(values), max(values), goal, met))

    def goal(self, part, what, value, limit, met=None):
        """A line with the goal, and whether it is met."""
        word = "met" if (value <= limit if met is None else met) else "missed"
        self.add(part, what, OURS, "goal", [value], f"<= {limit:.4g}", word)
        return f"  {what:66} {value:6.3f} (<= {limit:.4g}: {word})"


def columns(names, width=10):
    return "".join(f"{name:>{max(width, len(name) + 1)}}" for name in names)


def cells(names, texts, width=10):
    return "".join(f"{text:>{max(width, len(name) + 1)}}" for name, text in zip(names, texts))


def others(report):
    return [name for name in report.names if name != STOCK]


# --- speed ------------------------------------------------------------------------------


def note_speed(report, rows, part="speed", base=STOCK):
    for row in rows:
        for name in report.names:
            for figure in "cpu_ms", "wall_ms", "rss_kib", "system_calls":
                values = report.values(row, name, figure)
                if values:
                    report.add(part, row.name, name, figure, values)
            for figure in "cpu_ms", "wall_ms", "rss_kib":
                report.add(part, row.name, name, f"{figure.split('_')[0]}_ratio",
                           report.ratios(row, name, figure, base))


def speed_table(report, rows, sets):
    names = others(report)
    yield f"{'':15} {'':6} {STOCK:>9}{columns(names)}"
    for row in rows:
        ratios = [f"{report.ratio(row, name, 'cpu_ms'):.3f}" for name in names]
        yield (f"{row.name:15} {row.kind:6} {report.value(row, STOCK, 'cpu_ms'):9.0f}"
               f"{cells(names, ratios)}")
    for title, those in sets.items():
        for word, figure in ("", "cpu_ms"), (", wall time", "wall_ms"):
            means = [report.geomean(those, name, figure) for name in names]
            for name, mean in zip(names, means):
                report.add("speed", title, name, f"geomean_{figure.split('_')[0]}_ratio", [mean])
            yield f"{'geomean, ' + title + word:32}{cells(names, [f'{x:.3f}' for x in means])}"


def surely_slower(report, row):
    """Also in the fastest round, beside the slowest of jemalloc."""
    return min(report.values(row, OURS, "cpu_ms")) > NOISE * max(report.values(row, STOCK, "cpu_ms"))


def speed_goals(report, rows):
    ours = report.geomean(rows, OURS, "cpu_ms")
    for name, limit in GOALS.items():
        base = 1 if name == STOCK else report.geomean(rows, name, "cpu_ms")
        yield report.goal("speed", f"processor time, all, to {name}'s", ours / base, limit)
    slower = [row.name for row in rows if surely_slower(report, row)]
    worst = max(report.ratio(row, OURS, "cpu_ms") for row in rows)
    yield report.goal("speed", "processor time, each, beyond the spread of rounds", worst,
                      NOISE, not slower) + "".join(f"\n    above: {name}" for name in slower)


def memory_table(report, rows, small):
    names = others(report)
    calls = report.names if report.values(rows[0], STOCK, "system_calls") else []
    yield f"{'':15} {STOCK:>9}{columns(names)}   {columns(calls)}".rstrip()
    for row in rows:
        ratios = [f"{report.ratio(row, name, 'rss_kib'):.3f}" for name in names]
        counts = [f"{report.value(row, name, 'system_calls'):.0f}" for name in calls]
        yield (f"{row.name:15} {report.value(row, STOCK, 'rss_kib') / 1024:9.1f}"
               f"{cells(names, ratios)}   {cells(calls, counts)}").rstrip()
    if small:
        means = [report.geomean(small, name, "rss_kib") for name in names]
        for name, mean in zip(names, means):
            report.add("speed", "small programs", name, "geomean_rss_ratio", [mean])
        yield f"{'geomean, small programs':25}{cells(names, [f'{x:.3f}' for x in means])}"


def show_speed(report, rows):
    sets = {"all": rows, ORDINARY: [r for r in rows if r.kind not in ("large", "start")]}
    sets = {title: those for title, those in sets.items() if those}
    small = [row for row in rows if report.value(row, STOCK, "rss_kib") < SMALL_KIB]
    note_speed(report, rows)
    yield f"1. Speed: processor time, {STOCK}'s in ms and the others' to it"
    yield ""
    yield from speed_table(report, rows, sets)
    yield ""
    yield from speed_goals(report, rows)
    yield ""
    yield (f"   The most memory resident, {STOCK}'s in MiB and the others' to it; right, system"
           " calls at a tenth of the work")
    yield ""
    yield from memory_table(report, rows, small)
    if small:
        yield ""
        yield report.goal("speed", "resident memory, programs below 64 MiB, to mimalloc's",
                          report.geomean(small, OURS, "rss_kib")
                          / report.geomean(small, "mimalloc", "rss_kib"), 1.0)


# --- start ------------------------------------------------------------------------------


def show_start(report, rows):
    note_speed(report, rows, "start", "glibc")
    yield "2. Start of processes that do nothing: ms, and what that is to glibc"
    yield ""
    yield f"{'':22}{columns(report.names)}"
    for row in rows:
        for title, figure in ("processor time", "cpu_ms"), ("wall time", "wall_ms"):
            values = [f"{report.value(row, name, figure):.0f}" for name in report.names]
            ratios = [f"{report.ratio(row, name, figure, 'glibc'):.2f}" for name in report.names]
            yield f"{row.name + ', ' + title:22}{cells(report.names, values)}"
            yield f"{'  to glibc':22}{cells(report.names, ratios)}"
    yield ""
    for row in rows:
        for title, figure in ("processor time", "cpu_ms"), ("wall time", "wall_ms"):
            yield report.goal("start", f"{row.name}, {title}, to glibc's",
                              report.ratio(row, OURS, figure, "glibc"), START_GOAL)


# --- threads ----------------------------------------------------------------------------


def show_threads(report, rows):
    note_speed(report, rows, "threads")
    yield "3. Threads that come and go, so many at a time: processor time and resident memory"
    yield ""
    yield f"{'':22}{STOCK:>10}{columns(others(report))}"
    for row in rows:
        for title, figure, unit in ("ms", "cpu_ms", 1), ("MiB", "rss_kib", 1024):
            ratios = [f"{report.ratio(row, name, figure):.3f}" for name in others(report)]
            yield (f"{row.name + ', ' + title:22}{report.value(row, STOCK, figure) / unit:10.1f}"
                   f"{cells(others(report), ratios)}")
    yield ""
    for row in rows:
        for title, figure in ("processor time", "cpu_ms"), ("resident memory", "rss_kib"):
            yield report.goal("threads", f"{row.name}, {title}, to mimalloc's",
                              report.ratio(row, OURS, figure, "mimalloc"), 1.0)


# --- peaks ------------------------------------------------------------------------------


def to_live(report, row, name, figure="rss"):
    """Of each round, what there is to what is live at the peak."""
    return [(one["rss_kib"] * 1024 if figure == "rss" else one[figure]) / one["live_peak"]
            for one in report.results[row.name][name] if figure == "rss" or figure in one]


def untouched(report, row):
    """Bytes of heap that were never used, to what is live; and the most it should be."""
    rounds = report.results[row.name][OURS]
    return (statistics.median((one["mapped"] - one["touched"]) / one["live_peak"]
                              for one in rounds),
            statistics.median(UNTOUCHED + one["grow_step"] / one["live_peak"] for one in rounds))


def heap_texts(report, row):
    """Programs that are not written for this benchmark do not say what the heap is."""
    if not report.values(row, OURS, "mapped"):
        return ["-", "-"]
    report.add("peak", row.name, OURS, "mapped_to_live", to_live(report, row, OURS, "mapped"))
    return [f"{statistics.median(to_live(report, row, OURS, 'mapped')):.2f}",
            f"{untouched(report, row)[0]:.3f}"]


def peak_table(report, rows):
    names = report.names
    yield f"{'':19}{'live':>8}{columns(names)}{'mapped':>10}{'untouched':>11}"
    for row in rows:
        for name in names:
            report.add("peak", row.name, name, "rss_to_live", to_live(report, row, name))
        live = report.value(row, STOCK, "live_peak")
        report.add("peak", row.name, STOCK, "live_bytes", [live])
        texts = [f"{statistics.median(to_live(report, row, name)):.2f}" for name in names]
        mapped, never = heap_texts(report, row)
        yield f"{row.name:19}{live / 2**20:8.1f}{cells(names, texts)}{mapped:>10}{never:>11}"


def moved_table(report, rows):
    """A block that moved was copied, or its pages were mapped elsewhere: no program can tell."""
    yield f"{'':19}{'':8}{columns(report.names)}"
    for row in rows:
        moved = [report.values(row, name, "moved") for name in report.names]
        for name, values in zip(report.names, moved):
            report.add("peak", row.name, name, "moved_bytes", values)
        texts = [f"{statistics.median(values) / 2**20:.1f}" for values in moved]
        yield f"{row.name:19}{'':8}{cells(report.names, texts)}"


def peak_goals(report, rows):
    for row in rows:
        rss = {name: statistics.median(to_live(report, row, name)) for name in report.names}
        goals = dict(PEAK_GOALS.get(row.name, {}))
        goals.setdefault(STOCK, 1.0)
        for base, limit in goals.items():
            what, to = ("live", 1.0) if base == "live" else (f"{base}'s", rss[base])
            yield report.goal("peak", f"{row.name}, resident to {what}", rss[OURS] / to, limit)
        if report.values(row, OURS, "mapped"):
            yield report.goal("peak", f"{row.name}, untouched to live, and a growth step",
                              *untouched(report, row))


def show_peak(report, rows):
    yield "4. Peaks: MiB live at the peak, and what is resident at most to that"
    yield f"   {OURS}'s heap: mapped at the end, and never touched, to what is live"
    yield ""
    yield from peak_table(report, rows)
    yield ""
    moving = [row for row in rows if report.values(row, STOCK, "moved")]
    if moving:
        yield "   MiB that realloc moved: copied, or, as glibc does with large blocks, remapped"
        yield ""
        yield from moved_table(report, moving)
        yield ""
    yield from peak_goals(report, rows)


def show(report, chosen):
    """The tables of the parts for which there are rows."""
    for part, shown in (("speed", show_speed), ("start", show_start),
                        ("threads", show_threads), ("peak", show_peak)):
        if chosen[part]:
            yield ""
            yield from shown(report, chosen[part])


# --- files ------------------------------------------------------------------------------


def write_csv(report, path, of_run):
    """A figure a line, behind what all of this run have in common."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*of_run, *Figure._fields])
        for line in report.figures:
            writer.writerow([*of_run.values(),
                             *(f"{x:.6g}" if isinstance(x, float) else x for x in line)])
