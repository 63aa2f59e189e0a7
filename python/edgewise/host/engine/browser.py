"""The engine in Pyodide: a WebAssembly instance with its own memory, in Pyodide's thread (the
page's, a worker's, or that of Node).

Beside text/browser.py the only Python file that uses JavaScript. The top of wasm/Makefile describes
how an instance is started. By default the WebAssembly module is read from the wheel. A host that
stores it elsewhere passes it before the first session:

    const browser = pyodide.pyimport("edgewise.engine.browser");
    browser.use_module(module); // a WebAssembly.Module, or its bytes
    await browser.load_module("/engine.wasm"); // compiled while it downloads

Bytes are copied between Pyodide's and the engine's memory by one `set` of a typed array. Views of
the engine's memory are created for each copy, since they are detached when the memory grows.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import js
from pyodide.ffi import JsBigInt, JsException, JsProxy

from ...errors import EngineError, InputError, ModelError, OutOfMemory
from .base import Engine, LoadedPlan

if TYPE_CHECKING:
    from ...compiler.ir import Tensor
    from ...compiler.plan import Plan
    from .device import Bytes

PAGE = 65536  # bytes
INITIAL_PAGES = 32  # as in wasm/Makefile
MAX = 0xFFFF0000  # maximum size of a 32-bit memory in bytes
STEP = 8 << 20  # weights are copied in pieces of this many bytes
WIDE = {"ew_plan_register": 2}  # index of an argument that is an int64, passed as a BigInt
# The engine with all kernels: compared with Pyodide, the rare ones are small.
FILE = "edgewise-simd128-full.wasm"

_module: Any = None  # compiled once per process


def use_module(module: Any) -> None:
    """Sets the WebAssembly module of all engines that are opened later.

    Args:
        module: a WebAssembly.Module, or its bytes as a Python or JavaScript buffer.

    Raises:
        InputError: it is neither.
        EngineError: the bytes cannot be compiled.
    """
    global _module
    _module = _compiled(module, "use_module")


async def load_module(url: str) -> None:
    """Like `use_module`, with a module that is compiled while it is downloaded.

    Raises:
        EngineError: it cannot be downloaded or compiled.
    """
    try:
        response = await js.fetch(url)
        if not response.ok:
            raise EngineError(
                f"the engine could not be fetched (HTTP {response.status})",
                url,
                "Serve the file there, or leave it to the wheel's own.",
            )
        use_module(await js.WebAssembly.compile(await response.arrayBuffer()))
    except JsException as e:
        raise EngineError(
            f"the engine could not be loaded ({_words(e)})",
            url,
            "Serve the file there, or leave it to the wheel's own.",
        ) from None


def wheel_module() -> str | None:
    """Path of the module in this package; None if a host has removed it."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), FILE)
    return path if os.path.exists(path) else None


class BrowserEngine(Engine):
    """An instance of the engine with one thread.

    Args:
        module: see use_module; by default the module of the process.
        max_bytes: maximum size of its memory; by default 4 GB.

    Attributes:
        flavour: the instruction set that the module was built for.
        threads: 1.
        memory_bytes: size of its memory, which never shrinks.

    Raises:
        EngineError: there is no module, or it is not the engine.
        OutOfMemory: the browser did not provide memory.
    """

    POINTER = "<I"
    threads = 1

    def __init__(self, module: Any = None, max_bytes: int = MAX) -> None:
        global _module
        if module is None and _module is None:
            path = wheel_module()
            if path is None:
                raise EngineError(
                    f"{FILE} is not there",
                    os.path.dirname(os.path.abspath(__file__)),
                    "Install Edgewise's own wheel, or hand over the engine with"
                    " edgewise.engine.browser.load_module(url).",
                )
            with open(path, "rb") as f:
                _module = _compiled(f.read(), path)
        module = _module if module is None else _compiled(module, "BrowserEngine")
        self.memory = _memory(-(-max_bytes // PAGE))
        imports = js.Object.new()
        imports.env = js.Object.new()
        imports.env.memory = self.memory
        try:
            self.exports = js.WebAssembly.Instance.new(module, imports).exports
        except JsException as e:
            raise EngineError(
                f"the engine could not be started ({_words(e)})",
                "",
                "Is it the engine of this version of Edgewise, for simd128?",
            ) from None
        self.functions: dict[str, Any] = {}
        self.call("__wasm_call_ctors")
        self.start(1)
        self.flavour = self._text(self.call("ew_flavour"))

    @property
    def memory_bytes(self) -> int:
        """Size of its WebAssembly.Memory in bytes."""
        return self.memory.buffer.byteLength

    def call(self, name: str, *args: int) -> int:
        """Calls an exported C function: integers in, an unsigned 32-bit integer out.

        Raises:
            EngineError: there is no function of this name, or it trapped. The C stack pointer is
                restored after a trap.
        """
        f = self.functions.get(name)
        if f is None:
            f = self.functions[name] = getattr(self.exports, name, None)
            if f is None:
                raise EngineError(
                    f"the engine has no function '{name}'",
                    "",
                    "The engine is of another version: load the wheel's own.",
                )
        if name in WIDE:
            at = WIDE[name]
            args = (*args[:at], JsBigInt(args[at]), *args[at + 1 :])
        stack = self._stack()
        try:
            result = f(*args)
        except (JsException, RecursionError) as e:  # a trap
            self._stack(stack)
            raise EngineError(
                f"the engine stopped ({_words(e)})",
                name,
                "This is a bug in Edgewise: please report it with the model.",
            ) from None
        return result & 0xFFFFFFFF if result else 0

    def alloc(self, nbytes: int) -> int:
        """Address of zeroed memory, 64-byte aligned. The WebAssembly.Memory grows if necessary.

        Raises:
            OutOfMemory: it cannot grow.
        """
        return self.check_alloc(
            self.call("ew_alloc", max(nbytes, 1)) if nbytes <= MAX else 0, nbytes
        )

    def free(self, address: int) -> None:
        """Frees what `alloc` returned. Address 0 is ignored."""
        self.call("ew_free", address)

    def _view(self, address: int, nbytes: int) -> Any:
        """A Uint8Array over engine memory."""
        return js.Uint8Array.new(self.memory.buffer, address, nbytes)

    def write(self, address: int, data: Bytes | JsProxy) -> None:
        """Copies data to an address: a Python buffer, a JavaScript ArrayBuffer, or a view of
        one.
        """
        if isinstance(data, JsProxy):
            data = _bytes_of(data)
            self._view(address, data.byteLength).set(data)
            return
        data = memoryview(data)
        if data.nbytes:
            self._view(address, data.nbytes).assign(
                data if data.ndim == 1 and data.itemsize == 1 else data.cast("B")
            )

    def read(self, address: int, nbytes: int) -> bytes:
        """A copy of engine memory."""
        return self._view(address, nbytes).to_bytes()

    def copy(self, source: int, target: int, nbytes: int) -> None:
        """Copies from address to address; the ranges may overlap."""
        if nbytes:
            self._view(target, nbytes).set(self._view(source, nbytes))

    def load(self, plan: Plan) -> BrowserPlan:
        """Loads and checks a plan. Raises PlanError."""
        return BrowserPlan(self, plan)

    def load_tensor(self, tensor: Tensor) -> tuple[int, bool]:
        """Address of a copy of a weight's bytes, and True: the caller must free it.

        Files, and sources with a method `read_js(offset, size) -> Uint8Array`, are copied without
        Python objects in between.
        """
        address = self.alloc(tensor.nbytes)
        try:
            if tensor.data is not None:
                self.write(address, tensor.data)
            else:
                self._fill(address, tensor.source, tensor.offset, tensor.nbytes)
        except BaseException:
            self.free(address)
            raise
        return address, True

    def _fill(self, address: int, source: Any, offset: int, nbytes: int) -> None:
        """Copies a range of a Source to an address. Raises ModelError."""
        if hasattr(source, "path") and self._fill_from_file(address, source, offset, nbytes):
            return
        read = getattr(source, "read_js", source.read)
        for at in range(0, nbytes, STEP):
            n = min(STEP, nbytes - at)
            try:
                part = read(offset + at, n)
            except JsException as e:
                raise ModelError(
                    f"it could not be read ({_words(e)})",
                    source.name,
                    "It may have been changed, moved or deleted since it was chosen: choose it"
                    " again.",
                ) from None
            if (part.byteLength if isinstance(part, JsProxy) else len(part)) != n:
                raise ModelError(
                    f"it ends inside the bytes {offset + at}..{offset + at + n}",
                    source.name,
                    "The file is truncated or was changed; fetch it again.",
                )
            self.write(address + at, part)

    def _fill_from_file(self, address: int, source: Any, offset: int, nbytes: int) -> bool:
        """Reads a file through Emscripten's file system directly into engine memory.

        It uses the descriptor that Python has open. Some file systems (JupyterLite's drive) fetch
        the whole file when it is opened, so that opening it for each weight would be slow.

        Returns:
            False if the source has no open file of Emscripten's
        """
        try:
            from pyodide_js import FS

            stream = FS.getStreamChecked(source.fileno())
        except (ImportError, AttributeError, JsException):
            return False
        try:
            # A view of all memory: Node's file system ignores the offset of a view.
            whole = js.Uint8Array.new(self.memory.buffer)
            at = 0
            while at < nbytes:
                n = FS.read(stream, whole, address + at, min(1 << 30, nbytes - at), offset + at)
                if not n:
                    raise ModelError(
                        "the file became shorter while it was read",
                        source.name,
                        "Do not change model files in use.",
                    )
                at += n
            return True
        except JsException as e:
            raise ModelError(
                f"it could not be read ({_words(e)})",
                source.name,
                "Do not change model files in use.",
            ) from None

    def _text(self, address: int) -> str:
        """A string in engine memory that ends with a zero byte."""
        memory = js.Uint8Array.new(self.memory.buffer)
        return memory.slice(address, memory.indexOf(0, address)).to_bytes().decode()

    def _stack(self, value: int | None = None) -> Any:
        """Returns the C stack pointer, or sets it to `value`. A trap leaves it changed."""
        f = self.functions
        if "stack" not in f:
            f["stack"] = (
                getattr(self.exports, "emscripten_stack_get_current", None),
                getattr(self.exports, "_emscripten_stack_restore", None),
            )
        get, put = f["stack"]
        if get is None or put is None:
            return 0
        return get() if value is None else put(value)


class BrowserPlan(LoadedPlan):
    """A plan in a BrowserEngine."""

    def run_timed(self) -> list[float]:
        """See LoadedPlan.run_timed. Uses JavaScript's clock, since the engine has none in wasm."""
        now, times = js.performance.now, []
        for i in range(len(self.plan.kernels) - self.plan.init_count):
            t = now()
            self._do(self.engine.call("ew_plan_run_steps", self.handle, i, 1, 0))
            times.append((now() - t) / 1000)
        return times


def _memory(pages: int) -> Any:
    """A WebAssembly.Memory that can grow to `pages`, or to fewer if the device does not reserve as
    many addresses.
    """
    last = None
    for shrink in (1, 2, 4, 8, 16):
        try:
            return js.WebAssembly.Memory.new(
                initial=INITIAL_PAGES, maximum=max(INITIAL_PAGES, min(65536, pages) // shrink)
            )
        except JsException as e:
            last = e
    raise OutOfMemory(
        f"the browser did not allocate memory for the engine ({_words(last)})",
        "",
        "Close other tabs.",
    )


def _compiled(module: Any, where: str) -> Any:
    """The WebAssembly.Module of a module, or of its bytes in Python or JavaScript.

    Raises:
        InputError, EngineError: see use_module.
    """
    if (
        isinstance(module, JsProxy)
        and js.Object.prototype.toString.call(module) == "[object WebAssembly.Module]"
    ):
        return module
    try:
        if isinstance(module, JsProxy):
            data = _bytes_of(module)
        else:
            data = js.Uint8Array.new(memoryview(module).nbytes)
            data.assign(memoryview(module).cast("B"))
    except (TypeError, AttributeError):
        raise InputError(
            f"a {type(module).__name__} is not a WebAssembly module",
            where,
            "Give a WebAssembly.Module or the bytes of one; for an address await load_module(url).",
        ) from None
    try:
        return js.WebAssembly.Module.new(data)
    except JsException as e:
        raise EngineError(
            f"the engine could not be compiled ({_words(e)})",
            where,
            "The file is damaged or is not WebAssembly, the browser is too old, or it refuses to"
            " compile on the page's thread: then await edgewise.engine.browser.load_module(url)"
            " first, or use a worker.",
        ) from None


def _bytes_of(data: Any) -> Any:
    """A Uint8Array over a JavaScript ArrayBuffer or view."""
    if js.ArrayBuffer.isView(data):
        return js.Uint8Array.new(data.buffer, data.byteOffset, data.byteLength)
    if not hasattr(data, "byteLength"):
        raise TypeError("no bytes")
    return js.Uint8Array.new(data)


def _words(e: BaseException | None) -> str:
    """The message of a JavaScript or Python exception."""
    return str(getattr(e, "message", "") or e)
