# SPDX-License-Identifier: BSD-2-Clause
"""pool.py: what the package pinalloc says of itself, in a process under the library with an adapter."""

import ctypes
import errno
import gc
import json
import mmap
import os
import sys
import threading

import numpy
import pinalloc

MIB = 1 << 20


def fails(number, call, *args, **options):
    try:
        call(*args, **options)
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError("it did not fail")


# A view keeps its memory, and what was made from it does.
pool = pinalloc.Pool(8 * MIB)
whole = pool.alloc(8 * MIB)
assert len(whole) == 8 * MIB and whole.format == "B" and not whole.readonly
whole[-3:] = b"end"
part = whole[-3:]
del whole
fails(errno.ENOMEM, pool.alloc, MIB)
fails(errno.EBUSY, pool.close)
assert bytes(part) == b"end"
del part
assert len(pool.alloc(8 * MIB)) == 8 * MIB
assert len(pool.alloc(0)) == 0

# So does an array, in any shape.
array = pool.empty((1024, 512), "f8")
array[:] = numpy.arange(512)
assert array.flags.c_contiguous and array.ctypes.data % 64 == 0
assert pool.empty((3, 5), order="F").flags.f_contiguous
column = array.T[7]
del array
fails(errno.ENOMEM, pool.alloc, 5 * MIB)
assert column.sum() == 7 * 1024
del column
gc.collect()
assert pool.empty(MIB).nbytes == 8 * MIB
pool.close()
pool.close()

# A slice outlives the name of its pool.
view = pinalloc.Pool(MIB).alloc(100)
gc.collect()
view[:] = b"x" * 100
live = pinalloc.stats()["live"]
del view
gc.collect()
assert live - pinalloc.stats()["live"] >= MIB

# Who registers elsewhere is told, and may refuse.
told = []
pool = pinalloc.Pool(MIB, grows=True, on_segment=lambda *segment: told.append(segment))
assert len(told) == 1 and told[0][1] >= MIB and told[0][2] is True
big = pool.alloc(64 * MIB, 4096)
assert len(told) == 2 and told[1][1] >= 64 * MIB
del big
pool.close()
assert [added for _, _, added in told] == [True, True, False, False]


class Refused(Exception):
    pass


def refuse(*_):
    raise Refused


try:
    pinalloc.Pool(MIB, on_segment=refuse)
    raise AssertionError("it was not refused")
except Refused:
    pass

# Errors have numbers.
fails(errno.EINVAL, pinalloc.Pool, 0)
fails(errno.EINVAL, pinalloc.Pool, MIB, page_size=4096)
fails(errno.EINVAL, pinalloc.Pool, MIB, node=1000)
fails(errno.ENOMEM, pinalloc.Pool, 1 << 45)
with pinalloc.Pool(MIB, node=0, threads=2) as pool:
    fails(errno.EINVAL, pool.alloc, 10, 3)
    fails(errno.EINVAL, pool.alloc, -1)


# Threads share a pool.
def use(pool):
    for i in range(2000):
        array = pool.empty(100 + i)
        array[:] = i
        assert (array == i).all()


pool = pinalloc.Pool(MIB, grows=True)
threads = [threading.Thread(target=use, args=[pool]) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
pool.close()

# Keys are those of a registration, of heap memory only.
ctypes.CDLL("libibverbs.so.1", ctypes.RTLD_GLOBAL)
verbs = ctypes.CDLL(None)  # as a linker finds them: the library's
for name in "get_device_list", "open_device", "alloc_pd", "reg_mr":
    getattr(verbs, "ibv_" + name).restype = ctypes.c_void_p


def call(function, *args):
    return function(*(ctypes.c_void_p(arg) for arg in args))


device = ctypes.c_void_p.from_address(call(verbs.ibv_get_device_list, 0)).value
pd = call(verbs.ibv_alloc_pd, call(verbs.ibv_open_device, device))
array = numpy.ones(MIB)
range_ = array.ctypes.data, array.nbytes
key = pinalloc.lookup(*range_, pd)
assert key.start == range_[0] and key.length == array.nbytes
assert key[:2] == tuple((ctypes.c_uint32 * 2).from_address(call(verbs.ibv_reg_mr, pd, *range_, 1) + 36))
mapped = mmap.mmap(-1, 4096)
fails(errno.ENOENT, pinalloc.lookup, ctypes.addressof(ctypes.c_char.from_buffer(mapped)), 1, pd)
fails(errno.EINVAL, pinalloc.lookup, *range_, pd, access=2)

# A report has the phases, and fails by name.
pinalloc.mark("phase")
pinalloc.report("out.json")
with open("out.json") as file:
    assert [phase["name"] for phase in json.load(file)["phases"]] == ["phase"]
os.unlink("out.json")
try:
    pinalloc.report("none/out.json")
    raise AssertionError("it did not fail")
except FileNotFoundError as error:
    assert error.filename == "none/out.json"

left_over = pinalloc.Pool(MIB).alloc(10)  # when Python ends
sys.stdout.write("as documented\n")
