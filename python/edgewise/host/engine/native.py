"""The engine as a shared library, called with ctypes."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from _thread import RLock
from typing import TYPE_CHECKING, Any

from ...compiler.onnx.source import FileSource
from ...errors import EngineError, ModelError, OutOfMemory
from .base import Engine

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...compiler.ir import Tensor
    from .device import Bytes

# Result type and argument types of the C functions.
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
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
    "ew_plan_pages": (
        ctypes.c_int32,
        [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32],
    ),
    "ew_plan_go_on": (ctypes.c_int32, [ctypes.c_void_p]),
    "ew_plan_slot_use": (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_uint32]),
    "ew_plan_register": (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int64]),
    "ew_plan_init": (ctypes.c_int32, [ctypes.c_void_p]),
    "ew_plan_init_steps": (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32]),
    "ew_plan_run": (ctypes.c_int32, [ctypes.c_void_p]),
    "ew_plan_run_some": (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_uint32]),
    "ew_plan_trips": (ctypes.c_uint32, [ctypes.c_void_p, ctypes.c_uint32]),
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


def library_path() -> str:
    """Path of the shared library for this machine. The environment variable EDGEWISE_LIBRARY
    overrides it.

    On x86-64 there are libraries for several levels of instruction sets. The lowest tells which
    levels this CPU supports.

    Raises:
        EngineError: there is no library, or it is built for another kind of machine.
    """
    if os.environ.get("EDGEWISE_LIBRARY"):
        return os.environ["EDGEWISE_LIBRARY"]
    folder = os.path.dirname(os.path.abspath(__file__))
    suffix = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
    path = os.path.join(folder, f"libedgewise{suffix}")
    if not os.path.exists(path):
        raise EngineError(
            "the native engine library is not there",
            folder,
            "Install a wheel for this platform, or run `make native` in a checkout.",
        )
    cpu_level = getattr(_open(path), "ew_cpu_level", None)
    for level in range(cpu_level() if cpu_level else 1, 1, -1):
        better = os.path.join(folder, f"libedgewise-v{level}{suffix}")
        if os.path.exists(better):
            return better
    return path


def _open(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as e:
        raise EngineError(
            f"the native engine library cannot be loaded ({e})",
            path,
            "Install the wheel for this platform, or run `make native` in a checkout.",
        ) from None


class _Forked:
    """Lock of an engine in a child process. When it is first acquired, the engine starts its
    threads.
    """

    def __init__(self, engine: NativeEngine, lock: RLock) -> None:
        self.engine, self.lock = engine, lock

    def __enter__(self) -> None:
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

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class NativeEngine(Engine):
    """An engine in the shared library at `library_path()`.

    Args:
        threads: number of threads that compute, by default one for each core that this process may
            use.

    Raises:
        EngineError: there is no library, or it cannot be loaded.
        OutOfMemory: the engine could not be opened.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.library = _open(library_path())
        self._functions: dict[str, Any] = {}
        self.start(
            threads or len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else (threads or os.cpu_count() or 1)
        )

    def function(self, name: str) -> Callable[..., int]:
        """An exported C function. It takes integers and returns an integer (ew_flavour: bytes).

        Raises:
            EngineError: the library has no function of this name.
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

    def call(self, name: str, *args: int) -> Any:
        """Calls an exported C function; see `function`."""
        f: Any = self._functions.get(name) or self.function(name)
        if f.argtypes is None:
            return f(*[ctypes.c_int64(a) for a in args])
        return f(*args) or 0

    def in_child(self) -> None:
        """Called in the child after a fork. The engine starts new threads when it is first
        locked.
        """
        self.lock = _Forked(self, self.lock)

    def close(self) -> None:
        """Ends the engine's threads and frees its own memory, but not what `alloc` returned.

        No plan may be running, and the engine cannot be used afterwards.
        """
        handle, self.handle = self.handle, 0
        if handle:
            self.call("ew_close", handle)

    def __del__(self) -> None:
        if sys is None or sys.is_finalizing() or not getattr(self, "handle", 0):  # the process ends
            return
        if type(self.lock) is RLock:  # otherwise its threads belong to the parent process
            self.free(self.cell)
            self.close()

    @property
    def flavour(self) -> str:
        """The instruction set that the library was built for: "x86-64", "x86-64-v3", ..."""
        return self.call("ew_flavour").decode()

    @property
    def threads(self) -> int:
        """Number of threads that compute, including the caller's."""
        return self.call("ew_threads", self.handle)

    def alloc(self, nbytes: int) -> int:
        """Address of zeroed memory, 64-byte aligned. Raises OutOfMemory."""
        return self.check_alloc(self.call("ew_alloc", max(nbytes, 1)), nbytes)

    def free(self, address: int) -> None:
        """Frees what `alloc` returned."""
        self.call("ew_free", address)

    def write(self, address: int, data: Bytes) -> None:
        """Copies bytes-like data to an address."""
        view = memoryview(data).cast("B")
        if view.readonly:
            ctypes.memmove(address, bytes(view) if not isinstance(data, bytes) else data, len(view))
        elif len(view):
            ctypes.memmove(address, (ctypes.c_char * len(view)).from_buffer(view), len(view))

    def address_of(self, data: Bytes) -> tuple[int, object] | None:
        """Address of a caller's buffer, and the object that keeps it valid; None for buffers that
        are read-only or not contiguous.
        """
        view = memoryview(data)
        if view.readonly or not view.c_contiguous or not view.nbytes:
            return None
        held = ctypes.c_char.from_buffer(view)
        return ctypes.addressof(held), held

    def read(self, address: int, nbytes: int) -> bytes:
        """A copy of engine memory."""
        return ctypes.string_at(address, nbytes)

    def view(self, address: int, nbytes: int) -> memoryview:
        """A writable memoryview of bytes, valid until the memory is freed."""
        return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")

    def copy(self, source: int, target: int, nbytes: int) -> None:
        """Copies from address to address; the ranges may overlap."""
        ctypes.memmove(target, source, nbytes)

    def load_tensor(self, tensor: Tensor) -> tuple[int, bool]:
        """Address of a weight's bytes, and whether they are a copy that the caller must free.

        A weight that is aligned to 16 bytes in its file is not copied: the file is mapped.
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
    def _map(source: FileSource, end: int) -> int:
        """Address of the mapping of an open file, which lives as long as its source. A file that
        replaces it under the same path gets a mapping of its own.

        Args:
            source: the file.
            end: number of bytes that the file must have.

        Raises:
            ModelError: the file is shorter.
        """
        if source.mapping is None:
            # ctypes needs a writable mapping. It is private and never written.
            m = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_COPY)
            source.mapping = (m, ctypes.addressof(ctypes.c_char.from_buffer(m)))
        if end > len(source.mapping[0]):
            raise ModelError(
                "the file became shorter after it was opened",
                source.name,
                "Do not change model files in use.",
            )
        return source.mapping[1]
