# SPDX-License-Identifier: BSD-2-Clause
"""What programs of numpy do with memory: expressions with temporaries, pieces that are put
together, a series of arrays in two generations and one array that is appended to again and again.

  usage: numpy-arrays.py SCALE    about 2 GiB * SCALE is live at the peak"""
import os
import random
import sys
import tracemalloc

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # or each has buffers; read as it is loaded
import numpy

SCALE = float(sys.argv[1])
NUMBERS = random.Random(int(os.environ.get("WORKLOAD_SEED", 0)))
SIDES = [1000, 1300, 1700, 2100, 2500, 3000, 2800, 2000, 3100, 3200]


def fresh(n):
    """About n numbers at scale 1; no two arrays are the same, nor round."""
    return numpy.ones(max(1, round(n * SCALE * NUMBERS.uniform(0.97, 1.03))))


def expression(side):
    a = fresh(side * side)
    b, c = numpy.arange(a.size, dtype=float), a / 3
    d = a + b * c
    e = numpy.concatenate((d, numpy.sqrt(a * a + b * b)))
    s = numpy.cumsum(e * 2 - c.mean())
    return s[-1]


def pieces():
    """As read from a file, chunk by chunk; then what is above the mean of it."""
    chunks = [fresh(NUMBERS.randint(2000, 100000)) * i for i in range(800)]
    whole = numpy.concatenate(chunks)
    return whole[whole > whole.mean()]


def series():
    first = [fresh(100000 * (i + 1)) for i in range(39)]
    longer = [numpy.append(one, one[:one.size // 3]) for one in first]
    del first
    return longer, [one * 2 for one in longer]


def history():
    whole = numpy.empty(0)
    for _ in range(60):
        whole = numpy.append(whole, fresh(500000))
    return whole


def rss_peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) << 10


# numpy tells it of its arrays. What the interpreter has held before is not counted.
tracemalloc.start()
for side in SIDES:
    expression(side)
above = pieces()
generations = series()
whole = history()
print("live_peak", tracemalloc.get_traced_memory()[1])
print("rss_peak", rss_peak())
