# SPDX-License-Identifier: BSD-2-Clause
"""Pools of registered memory.

Memory goes back to its pool when nothing refers to it any more: neither the view or array nor anything
that was made from it. pinalloc(3) has what the options mean.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import weakref
from typing import Any, Callable, Sequence

import pinalloc

HUGE = 1 << 21
GIGANTIC = 1 << 30

_GROWS = 1
_ON_NODE = 2

_ON_SEGMENT = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
)


class _Options(ctypes.Structure):
    _fields_ = [
        ("bytes", ctypes.c_size_t),
        ("page_size", ctypes.c_size_t),
        ("threads", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("node", ctypes.c_uint),
        ("on_segment", _ON_SEGMENT),
        ("arg", ctypes.c_void_p),
    ]


@functools.lru_cache(maxsize=None)
def _library():
    library = pinalloc._library()
    library.pinalloc_pool_create.restype = ctypes.c_void_p
    library.pinalloc_pool_create.argtypes = [ctypes.POINTER(_Options), ctypes.c_size_t]
    library.pinalloc_pool_alloc.restype = ctypes.c_void_p
    library.pinalloc_pool_alloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    library.pinalloc_pool_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.pinalloc_pool_destroy.argtypes = [ctypes.c_void_p]
    return library


def _error(number):
    return OSError(number, os.strerror(number))


def _later(owner, function, *args):
    # Not when Python ends: others may still be using the memory then.
    weakref.finalize(owner, function, *args).atexit = False


class _Handle:
    """What the slices of a pool refer to: it is destroyed when there are none any more."""

    def __init__(self, options, on_segment):
        self.failure = None
        if on_segment:
            options.on_segment = self._callback(on_segment)
        self.options = options
        self.library = _library()
        self.pool = self.library.pinalloc_pool_create(ctypes.byref(options), ctypes.sizeof(options))
        if not self.pool:
            self.fail(ctypes.get_errno())

    def _callback(self, on_segment):
        this = weakref.ref(self)

        def call(start, length, is_added, _):
            try:
                on_segment(start, length, bool(is_added))
            except BaseException as failure:  # C must not be left by an exception
                if this():
                    this().failure = failure
                return errno.ECANCELED
            return 0

        return _ON_SEGMENT(call)

    def fail(self, number):
        failure, self.failure = self.failure, None
        raise failure or _error(number)

    def alloc(self, size, alignment):
        address = self.library.pinalloc_pool_alloc(self.pool, size, alignment)
        if not address:
            self.fail(ctypes.get_errno())
        return address

    def free(self, address):
        self.library.pinalloc_pool_free(self.pool, address)

    def destroy(self):
        if self.pool:
            error = self.library.pinalloc_pool_destroy(self.pool)
            if error:
                raise _error(-error)
            self.pool = None

    def __del__(self):
        if getattr(self, "pool", None):
            self.library.pinalloc_pool_destroy(self.pool)


class Pool:
    """Memory that is made at once, registered, and handed out in slices.

    bytes       the least that it has
    grows       whether it gets more when it is full
    page_size   HUGE or GIGANTIC; 0 for the heap's
    threads     that touch it; 0 for a number that is fast
    node        a memory node; None for the caller's
    on_segment  called with (start, length, is_added) for each piece of memory, before it is handed
                out and before it goes. What it raises, the call that wanted the memory raises.

    OSError with ENOMEM, EINVAL, EFBIG, EBUSY: see pinalloc(3).
    """

    def __init__(
        self,
        bytes: int,
        *,
        grows: bool = False,
        page_size: int = 0,
        threads: int = 0,
        node: int | None = None,
        on_segment: Callable[[int, int, bool], Any] | None = None,
    ) -> None:
        flags = (_GROWS if grows else 0) | (_ON_NODE if node is not None else 0)
        options = _Options(bytes, page_size, threads, flags, node or 0)
        self._handle = _Handle(options, on_segment)

    def _slice(self, size, alignment):
        if self._handle is None:
            raise ValueError("the pool is closed")
        if size < 0 or alignment < 0:
            raise _error(errno.EINVAL)
        address = self._handle.alloc(size, alignment)
        memory = (ctypes.c_ubyte * max(size, 1)).from_address(address)
        _later(memory, self._handle.free, address)
        return memory

    def alloc(self, size: int, alignment: int = 0) -> memoryview:
        """A memoryview of so many bytes, whose content is not defined."""
        return memoryview(self._slice(size, alignment)).cast("B")[:size]

    def empty(self, shape: int | Sequence[int], dtype: Any = float, order: str = "C") -> Any:
        """A NumPy array whose content is not defined."""
        import numpy

        dtype = numpy.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = 1
        for n in shape:
            count *= n
        memory = self._slice(count * dtype.itemsize, max(64, dtype.alignment))
        return numpy.ndarray(shape, dtype, memory, order=order)

    def close(self) -> None:
        """Gives the memory to malloc; OSError with EBUSY while slices are in use."""
        if self._handle is not None:
            self._handle.destroy()
            self._handle = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
