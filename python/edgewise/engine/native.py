"""The engine as a shared library, through ctypes."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import sys
from _thread import RLock

from ..errors import EngineError, ModelError, OutOfMemory
from ..onnx.source import FileSource
from .base import Engine

_SIGNATURES = {
    "ew_open": (ctypes.c_void_p, [ctypes.c_int32]),
    "ew_close": (None, [ctypes.c_void_p]),
    "ew_threads": (ctypes.c_int32, [ctypes.c_void_p]),
    "ew_after_fork": (ctypes.c_int32, [ctypes.c_void_p]),
    "ew_stop": (None, [ctypes.c_void_p, ctypes.c_int32]),
    "ew_last_error": (ctypes.c_void_p, [ctypes.c_void_p]),
    "ew_table_hash": (ctypes.c_uint32, []),
    "ew_flavour": (ctypes.c_char_p, []),
    "ew_alloc": (ctypes.c_void_p, [ctypes.c_size_t]),
    "ew_free": (None, [ctypes.c_void_p]),
    "ew_plan_load": (
        ctypes.c_int32,
        [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p],
    ),
    "ew_plan_bind": (
        ctypes.c_int32,
        [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t],
    ),
    "ew_plan_slot_use": (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_uint32]),
    "ew_plan_register": (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int64]),
    "ew_plan_init": (ctypes.c_int32, [ctypes.c_void_p]),
    "ew_plan_run": (ctypes.c_int32, [ctypes.c_void_p]),
    "ew_plan_run_steps": (
        ctypes.c_int32,
        [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p],
    ),
    "ew_plan_resolve": (
        ctypes.c_int32,
        [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p],
    ),
    "ew_plan_free": (None, [ctypes.c_void_p]),
}


def _levels():
    """The x86-64 levels above the first whose code this CPU runs, best first: v4 (AVX-512), v3
    (AVX2, FMA, F16C, BMI2).
    """
    try:
        with open("/proc/cpuinfo") as f:
            flags = next((line for line in f if line.startswith("flags")), "").split()
    except OSError:
        return []
    v3 = {"avx2", "fma", "f16c", "bmi2"}
    return [
        name
        for name, wanted in (
            ("v4", v3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
            ("v3", v3),
        )
        if wanted <= set(flags)
    ]


def library_path():
    """Path of the shared library for this machine; EDGEWISE_LIBRARY overrides it."""
    if os.environ.get("EDGEWISE_LIBRARY"):
        return os.environ["EDGEWISE_LIBRARY"]
    folder = os.path.dirname(os.path.abspath(__file__))
    names = ["libedgewise.so", "libedgewise.dylib", "edgewise.dll"]
    if platform.machine() in ("x86_64", "AMD64"):
        names[:0] = [f"libedgewise-{level}.so" for level in _levels()]
    for name in names:
        if os.path.exists(os.path.join(folder, name)):
            return os.path.join(folder, name)
    raise EngineError(
        "the native engine library is not there",
        folder,
        "Install a wheel for this platform, or run `make native` in a checkout.",
    )


class _Forked:
    """The lock of an engine in a child process, until it is used there."""

    def __init__(self, engine, lock):
        self.engine, self.lock = engine, lock

    def __enter__(self):
        engine = self.engine
        self.lock.acquire()
        if engine.lock is self:
            if engine.call("ew_after_fork", engine.handle):
                self.lock.release()
                raise OutOfMemory(
                    "the threads of the engine could not be started",
                    "fork",
                    "Free memory and try again.",
                )
            engine.lock = self.lock

    def __exit__(self, *_):
        self.lock.release()


class NativeEngine(Engine):
    """The shared library of `library_path()`, in this process.

    threads: how many may work at once, default the cores that this process may use. Raises
    EngineError where there is no library, OutOfMemory.
    """

    def __init__(self, threads=None):
        self.library = ctypes.CDLL(library_path())
        self._functions = {}
        self.start(
            threads or len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else (threads or os.cpu_count() or 1)
        )

    def function(self, name):
        """Any exported C function; integers in, an integer (ew_flavour: bytes) out.

        Raises EngineError where there is none of this name.
        """
        f = self._functions.get(name)
        if f is None:
            try:
                f = getattr(self.library, name)
            except AttributeError:
                raise EngineError(
                    f"the library has no function '{name}'",
                    library_path(),
                    "Build it again with `make native`.",
                ) from None
            if name in _SIGNATURES:
                f.restype, f.argtypes = _SIGNATURES[name]
            else:
                f.restype, f.argtypes = ctypes.c_int64, None
            self._functions[name] = f
        return f

    def call(self, name, *args):
        """Calls an exported C function, as `function`."""
        f = self._functions.get(name) or self.function(name)
        if f.argtypes is None:
            return f(*[ctypes.c_int64(a) for a in args])
        return f(*args) or 0

    def in_child(self):
        """After a fork the child's engine starts threads of its own when it is locked first; until
        then it has none.
        """
        self.lock = _Forked(self, self.lock)

    def close(self):
        """Ends the engine's threads and frees its own memory; what was allocated in it stays.

        Nothing may run in it any more.
        """
        handle, self.handle = self.handle, 0
        if handle:
            self.call("ew_close", handle)

    def __del__(self):
        if sys is None or sys.is_finalizing() or not getattr(self, "handle", 0):  # the process ends
            return
        if type(self.lock) is RLock:  # else it is the parent's, and so are its threads
            self.free(self.cell)
            self.close()

    @property
    def flavour(self):
        """The instruction set it was built for: "x86-64", "x86-64-v3", ..."""
        return self.call("ew_flavour").decode()

    @property
    def threads(self):
        """Threads that compute, the caller's included."""
        return self.call("ew_threads", self.handle)

    def alloc(self, nbytes):
        """Address of nbytes, zeroed, 64-byte aligned. Raises OutOfMemory."""
        return self.check_alloc(self.call("ew_alloc", max(nbytes, 1)), nbytes)

    def free(self, address):
        """Gives back what `alloc` gave."""
        self.call("ew_free", address)

    def write(self, address, data):
        """Copies bytes-like data to an address."""
        view = memoryview(data).cast("B")
        if view.readonly:
            ctypes.memmove(address, bytes(view) if not isinstance(data, bytes) else data, len(view))
        elif len(view):
            ctypes.memmove(address, (ctypes.c_char * len(view)).from_buffer(view), len(view))

    def address_of(self, data) -> tuple[int, object] | None:
        """Address of a buffer of the caller's, and what keeps it there; None where that cannot be
        told (read-only buffers).
        """
        view = memoryview(data)
        if view.readonly or not view.c_contiguous or not view.nbytes:
            return None
        held = ctypes.c_char.from_buffer(view)
        return ctypes.addressof(held), held

    def read(self, address, nbytes):
        """A copy as bytes."""
        return ctypes.string_at(address, nbytes)

    def view(self, address, nbytes):
        """A writable memoryview (bytes) of engine memory, valid until it is freed."""
        return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")

    def copy(self, source, target, nbytes):
        """From address to address; they may overlap."""
        ctypes.memmove(target, source, nbytes)

    def load_tensor(self, tensor):
        """Address of a weight: inside the mapped file where its alignment allows, else a copy.

        Returns (address, owned).
        """
        source = tensor.source
        if tensor.data is None and isinstance(source, FileSource) and sys.byteorder == "little":
            base = self._map(source, tensor.offset + tensor.nbytes)
            if (base + tensor.offset) % 16 == 0:
                return base + tensor.offset, False
            address = self.alloc(tensor.nbytes)
            self.copy(base + tensor.offset, address, tensor.nbytes)
            return address, True
        address = self.alloc(tensor.nbytes)
        self.write(address, tensor.bytes())
        return address, True

    @staticmethod
    def _map(source, end):
        """Address of the file that a source opened, mapped once per source and for as long as it
        lives: a file that takes its place under the same path is another one.
        """
        if source.mapping is None:
            m = mmap.mmap(
                source.fileno(), 0, access=mmap.ACCESS_COPY
            )  # private and writable for ctypes' sake; never written
            source.mapping = (m, ctypes.addressof(ctypes.c_char.from_buffer(m)))
        if end > len(source.mapping[0]):
            raise ModelError(
                "the file became shorter after it was opened",
                source.name,
                "Do not change model files in use.",
            )
        return source.mapping[1]
