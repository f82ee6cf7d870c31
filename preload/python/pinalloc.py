# SPDX-License-Identifier: BSD-2-Clause
"""Pools of registered memory, and phases, for Python, in a process that runs under libpinalloc.so.

    import pinalloc

    pool = pinalloc.Pool(8 << 30, grows=True)
    view = pool.alloc(1 << 20)                # a memoryview of bytes
    array = pool.empty((1024, 1024), "f4")    # a NumPy array
    pinalloc.mark("solve")                    # the report says what this phase has in use at most

Memory goes back to the pool when nothing refers to it any more: neither the view or array nor
anything that was made from it. pinalloc(3) has what the options mean. Needs no NumPy but for arrays,
and no compiled code: this file may be copied.
"""

import ctypes
import errno
import os
import weakref

__all__ = ["Pool", "mark", "stats", "HUGE", "GIGANTIC"]

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


# struct pinalloc_stats, in its order; fields are only ever added at its end.
_FIGURES = (
    "live mapped growth_steps pinned pinned_peak mr_created mr_destroyed served passed_through refused "
    "evicted registration_ns live_peak registered registered_peak mr_ahead "
    "live_peak_since_mark"
).split()


def _load():
    library = ctypes.CDLL(None, use_errno=True)
    try:
        library.pinalloc_pool_create.restype = ctypes.c_void_p
    except AttributeError:
        raise ImportError(
            "the program does not run under libpinalloc.so, or under one without pools: "
            "start it with `pinalloc run`, or set LD_PRELOAD"
        ) from None
    library.pinalloc_pool_create.argtypes = [ctypes.POINTER(_Options), ctypes.c_size_t]
    library.pinalloc_pool_alloc.restype = ctypes.c_void_p
    library.pinalloc_pool_alloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    library.pinalloc_pool_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.pinalloc_pool_destroy.argtypes = [ctypes.c_void_p]
    library.pinalloc_stats.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


_library = _load()


def _error(number):
    return OSError(number, os.strerror(number))


def _later(owner, function, *args):
    # Not when Python ends: others may still be using the memory then.
    weakref.finalize(owner, function, *args).atexit = False


def stats():
    """The figures of this process, as pinalloc_stats() has them."""
    figures = (ctypes.c_uint64 * len(_FIGURES))()
    filled = _library.pinalloc_stats(figures, ctypes.sizeof(figures))
    return dict(zip(_FIGURES, figures[: filled // 8]))


def mark(name=None):
    """Begins a phase of the program, for the report; without a name only ends the one before."""
    if hasattr(_library, "pinalloc_mark"):  # not in an older library
        _library.pinalloc_mark(None if name is None else name.encode())


class _Handle:
    """What the slices of a pool refer to: it is destroyed when there are none any more."""

    def __init__(self, options, on_segment):
        self.failure = None
        if on_segment:
            options.on_segment = self._callback(on_segment)
        self.options = options
        self.pool = _library.pinalloc_pool_create(ctypes.byref(options), ctypes.sizeof(options))
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
        address = _library.pinalloc_pool_alloc(self.pool, size, alignment)
        if not address:
            self.fail(ctypes.get_errno())
        return address

    def free(self, address):
        _library.pinalloc_pool_free(self.pool, address)

    def destroy(self):
        if self.pool:
            error = _library.pinalloc_pool_destroy(self.pool)
            if error:
                raise _error(-error)
            self.pool = None

    def __del__(self):
        if getattr(self, "pool", None) and _library:
            _library.pinalloc_pool_destroy(self.pool)


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

    def __init__(self, bytes, *, grows=False, page_size=0, threads=0, node=None, on_segment=None):
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

    def alloc(self, size, alignment=0):
        """A memoryview of so many bytes, whose content is not defined."""
        return memoryview(self._slice(size, alignment)).cast("B")[:size]

    def empty(self, shape, dtype=float, order="C"):
        """A NumPy array whose content is not defined."""
        import numpy

        dtype = numpy.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = 1
        for n in shape:
            count *= n
        memory = self._slice(count * dtype.itemsize, max(64, dtype.alignment))
        return numpy.ndarray(shape, dtype, memory, order=order)

    def close(self):
        """Gives the memory to malloc; OSError with EBUSY while slices are in use."""
        if self._handle is not None:
            self._handle.destroy()
            self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
