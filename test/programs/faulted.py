# SPDX-License-Identifier: BSD-2-Clause
# Threads, modules with libraries of their own, large and small objects, a child. For test/faults.
import ctypes
import json
import os
import threading
import zlib


def work(number):
    data = {str(i): [i] * 10 for i in range(800)}
    found[number] = zlib.crc32(json.dumps(data).encode() * 3)


found = {}
threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
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
