# SPDX-License-Identifier: BSD-2-Clause
"""pool.py: what pinalloc.py says of itself, in a process under the library."""

import errno
import gc
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

left_over = pinalloc.Pool(MIB).alloc(10)  # when Python ends
sys.stdout.write("as documented\n")
