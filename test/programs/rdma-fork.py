# SPDX-License-Identifier: BSD-2-Clause
"""Python's worker processes, made by fork, while the parent does RDMA.

    rdma-fork.py PLUGIN     PLUGIN is test/programs/rdma-plugin.c, built
"""

import ctypes
import multiprocessing
import sys

plugin = ctypes.CDLL(sys.argv[1])
plugin.plugin_send.restype = ctypes.c_bool
inherited = [bytearray(b"i" * 4**n) for n in range(11)]  # to 1 MiB


def holds(block, number):
    return block == bytes([number]) * len(block)


def work(number):
    """Writes all it has inherited, allocates, frees; what it says must be true."""
    for block in inherited:
        block[:] = bytes([number]) * len(block)
    own = [bytes([number]) * size for size in range(1, 300000, 7001)]
    own = [block + block for block in own]
    right = all(holds(block, number) for block in inherited + own)
    return number if right else -1


def main():
    plugin.plugin_start()
    sent = [plugin.plugin_send(1)]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        result = pool.map_async(work, range(20), chunksize=1)
        while not result.ready() and len(sent) < 5000:
            sent.append(plugin.plugin_send(len(sent) + 1))
        numbers = result.get(60)
    sent.append(plugin.plugin_send(0))
    untouched = all(holds(block, ord("i")) for block in inherited)
    print("workers right:", numbers == list(range(20)))
    print("sent right:", all(sent), "while they worked:", len(sent) > 3)
    print("untouched:", untouched, flush=True)


main()
