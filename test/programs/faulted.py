# SPDX-License-Identifier: BSD-2-Clause
# Threads, modules with libraries of their own, large and small objects, a child. For test/faults.
import _thread
import ctypes
import json
import os
import time
import zlib


def work(number):
    data = {str(i): [i] * 10 for i in range(800)}
    found[number] = zlib.crc32(json.dumps(data).encode() * 3)


found = {}
# Not threading.Thread: start() waits forever for a thread that was refused memory before it began.
alone = os.stat("/proc/self/task").st_nlink
try:
    for number in range(2):
        _thread.start_new_thread(work, (number,))
finally:
    # Nor would Python wait for these at its end.
    while os.stat("/proc/self/task").st_nlink > alone:
        time.sleep(0.01)
work(2)
print(sorted(found.items()), sum(len(bytearray(1 << shift)) for shift in range(25)))
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.free(libc.malloc(1 << 24))
child = os.fork()
if not child:
    work(3)
    os._exit(0)
print(os.waitpid(child, 0)[1], flush=True)
