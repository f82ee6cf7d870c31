# SPDX-License-Identifier: BSD-2-Clause
"""What a process that runs under libpinalloc.so can ask of it: figures, phases, reports, keys and pools.

    import pinalloc

    pinalloc.mark("load")                     # the report says what this phase has in use at most
    pinalloc.stats()["live_peak"]             # bytes
    pool = pinalloc.Pool(8 << 30, grows=True)
    array = pool.empty((1024, 1024), "f4")    # a NumPy array of registered memory

    python3 -m pinalloc run -- PROGRAM [ARGUMENT...]      # starts a program under the library

The other commands of pinalloc(1) can be given in place of `run`. Sizes and addresses are in bytes. All
functions may be called by any thread, and other threads of Python run meanwhile. Without the library all
but is_loaded() and library() raise NotLoaded; other errors are OSErrors with the numbers of pinalloc(3).
Needs no compiled code, and NumPy for arrays only.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import subprocess
import sys
from typing import NamedTuple

__all__ = ["GIGANTIC", "HUGE", "Key", "NotLoaded", "Pool", "is_loaded", "library", "lookup", "mark", "report", "stats"]

# struct pinalloc_stats, in its order; fields are only ever added at its end.
_FIGURES = (
    "live mapped growth_steps pinned pinned_peak mr_created mr_destroyed served passed_through refused "
    "evicted registration_ns live_peak registered registered_peak mr_ahead "
    "live_peak_since_mark"
).split()


class NotLoaded(RuntimeError):
    """The process does not run under the library."""


class Key(NamedTuple):
    """The keys of a range of memory, as struct pinalloc_key has them."""

    lkey: int
    rkey: int
    start: int  # an address
    length: int  # bytes


class _Key(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("lkey", "rkey")] + [
        (name, ctypes.c_uint64) for name in ("start", "length")
    ]


@functools.lru_cache(maxsize=None)
def _loaded() -> ctypes.CDLL | None:
    here = ctypes.CDLL(None, use_errno=True)
    if not hasattr(here, "pinalloc_mark"):  # nor has a library that is too old for this module
        return None
    here.pinalloc_stats.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    here.pinalloc_mark.argtypes = here.pinalloc_report.argtypes = [ctypes.c_char_p]
    here.pinalloc_lookup.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint, ctypes.POINTER(_Key)
    ]
    return here


def _library() -> ctypes.CDLL:
    here = _loaded()
    if here is None:
        raise NotLoaded(
            f"libpinalloc.so is not loaded in process {os.getpid()} ({sys.executable or 'Python'}): start the program "
            "with `python3 -m pinalloc run -- PROGRAM`, or LD_PRELOAD set to what pinalloc.library() returns"
        )
    return here


def _check(status: int, *path: str) -> None:
    if status:
        raise OSError(-status, os.strerror(-status), *path)


def _command(name: str = "pinalloc") -> str:
    """The path of a command, which is in this package (a wheel), or in the same installation."""
    package = os.path.dirname(os.path.abspath(__file__))
    paths = [os.path.normpath(os.path.join(package, way, name)) for way in ("bin", "../../../bin")]
    for path in paths:
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(errno.ENOENT, "not installed by pip or make install: there is no", paths[-1])


def is_loaded() -> bool:
    """Whether this process runs under the library."""
    return _loaded() is not None


def library() -> str:
    """The path of the libpinalloc.so of this installation, for LD_PRELOAD; loaded or not.

    FileNotFoundError if there is no installation around this package; CalledProcessError if its command
    fails, which says why.
    """
    run = [_command(), "run", "printenv", "LD_PRELOAD"]
    return subprocess.run(
        run, env={**os.environ, "LD_PRELOAD": ""}, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.rstrip("\n")


def stats() -> dict[str, int]:
    """The figures of this process by the names of struct pinalloc_stats.

    Bytes: live, mapped, pinned, registered, their peaks. Nanoseconds: registration_ns. All others are
    numbers since the start.
    """
    figures = (ctypes.c_uint64 * len(_FIGURES))()
    filled = _library().pinalloc_stats(figures, ctypes.sizeof(figures))
    return dict(zip(_FIGURES, figures[: filled // 8]))


def mark(name: str | None = None) -> None:
    """Begins a phase of the program, for the report; without a name only ends the one before.

    47 bytes of the name count. After 64 names the library prints a line, and all further names count as one.
    """
    _library().pinalloc_mark(None if name is None else name.encode())


def report(path: str | os.PathLike[str] = "stderr") -> None:
    """Writes the report now: JSON if the path ends in .json, else text.

    %h, %p and %r in the path stand for the host, the process and the MPI rank. OSError if the file cannot
    be written.
    """
    _check(_library().pinalloc_report(os.fsencode(path)), os.fspath(path))


def lookup(address: int, length: int, pd: int | ctypes.c_void_p, access: int = 1) -> Key:
    """The keys of so many bytes of heap memory, which are registered if they are not yet.

    pd      the address of a struct ibv_pd of this process
    access  IBV_ACCESS_* rights of the keys; 1 is IBV_ACCESS_LOCAL_WRITE

    Of NumPy's arrays: lookup(a.ctypes.data, a.nbytes, pd); of tensors: lookup(t.data_ptr(), t.nbytes, pd).
    OSError with ENOENT (not all of it is heap memory), EACCES, EINVAL, ENOMEM.
    """
    key = _Key()
    _check(_library().pinalloc_lookup(pd, address, length, access, ctypes.byref(key)))
    return Key(key.lkey, key.rkey, key.start, key.length)


from pinalloc.pools import GIGANTIC, HUGE, Pool  # noqa: E402  which imports the above
