# SPDX-License-Identifier: BSD-2-Clause
"""Sends NumPy arrays of a pool with mpi4py. After a first round no message waits for a registration.

    mpirun -n 2 pinalloc run python3 exchange.py [ROUNDS]

Needs mpi4py, and the package pinalloc, which is beside this file. Prints for each rank

    rank N rounds N wrong N registrations N
"""

import sys

import numpy
from mpi4py import MPI

import pinalloc

SIZES = [1 << n for n in range(10, 22)]  # of float32: 4 KiB to 8 MiB

world = MPI.COMM_WORLD
rank, peer = world.rank, world.rank ^ 1


def exchange(pool, seed):
    """Sends an array of each size; returns how many are not what the peer has sent."""
    wrong = 0
    for size in SIZES:
        mine, theirs = pool.empty(size, "f4"), pool.empty(size, "f4")
        mine[:] = seed + size + rank
        theirs[:] = -1
        world.Sendrecv([mine, MPI.FLOAT], peer, 0, [theirs, MPI.FLOAT], peer, 0)
        theirs -= seed + size + peer
        wrong += bool(theirs.any())
    return wrong


def registrations():
    """How many a message has waited for. What else the program touches is registered in the background."""
    figures = pinalloc.stats()
    return figures["mr_created"] - figures["mr_ahead"] + figures["passed_through"]


rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
with pinalloc.Pool(64 << 20, grows=True) as pool:
    wrong = exchange(pool, 0)
    before = registrations()
    for i in range(rounds):
        wrong += exchange(pool, i)
    made = registrations() - before
sys.stdout.write(f"rank {rank} rounds {rounds} wrong {wrong} registrations {made}\n")
