"""The engine in Pyodide: a WebAssembly instance with a memory of its own, in the thread that
Pyodide runs in (a page's, a worker's, or Node's).

The only Python file that uses JavaScript; how an instance is started is described at the top of
wasm/Makefile. The module comes from the wheel. A host that has it already, or keeps it elsewhere,
passes it before the first session:

    const browser = pyodide.pyimport("edgewise.engine.browser");
    browser.use_module(module); // a WebAssembly.Module, or its bytes
    await browser.load_module("/engine.wasm"); // compiled while it downloads

Bytes are copied from one memory to the other by one `set` of a typed array. The engine's memory
grows, which detaches every view of it: views are made for one copy and dropped.
"""

from __future__ import annotations

import os

import js
from pyodide.ffi import JsBigInt, JsException, JsProxy

from ..errors import EngineError, InputError, ModelError, OutOfMemory
from .base import Engine, LoadedPlan

PAGE = 65536
INITIAL_PAGES = 32  # of wasm/Makefile
MOST = 0xFFFF0000  # bytes: what a 32-bit memory can hold
STEP = 8 << 20  # weights are copied in pieces of so many bytes
WIDE = {"ew_plan_register": 2}  # which argument is an int64: it crosses as a BigInt
FILE = (  # all kernels: beside Pyodide's own size the rare ones are nothing
    "edgewise-simd128-full.wasm"
)

_module = None  # compiled once per process


def use_module(module):
    """Makes engines that are opened from now on instances of this module: a WebAssembly.Module, or
    bytes of one (Python's or JavaScript's).
    """
    global _module
    _module = _compiled(module, "use_module")


async def load_module(url):
    """use_module from an address, compiled while it is downloaded. Raises EngineError."""
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


def wheel_module():
    """The path of the module that came with this package; None where a host has put it aside."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), FILE)
    return path if os.path.exists(path) else None


class BrowserEngine(Engine):
    """One instance of the engine, with one thread.

    Args:
        module: as for use_module; by default the process's. max_bytes: how far its memory may grow
        (default: as far as it goes, 4 GB).

    Attributes: flavour; threads; memory_bytes (what it holds; it never shrinks).
    """

    POINTER = "<I"
    threads = 1

    def __init__(self, module=None, max_bytes=MOST):
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
        self.functions = {}
        self.call("__wasm_call_ctors")
        self.start(1)
        self.flavour = self._text(self.call("ew_flavour"))

    @property
    def memory_bytes(self):
        """Bytes of its WebAssembly.Memory."""
        return self.memory.buffer.byteLength

    def call(self, name, *args):
        """Any exported C function; integers in, an unsigned 32-bit integer out.

        EngineError: there is none of this name, or it trapped (its stack is then put right again).
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
                "This is a mistake in Edgewise: please report it with the model.",
            ) from None
        return result & 0xFFFFFFFF if result else 0

    def alloc(self, nbytes):
        """Address of nbytes, zeroed, 64-byte aligned; the memory grows where it must.

        Raises OutOfMemory.
        """
        return self.check_alloc(
            self.call("ew_alloc", max(nbytes, 1)) if nbytes <= MOST else 0, nbytes
        )

    def free(self, address):
        """Gives back what `alloc` gave; 0 is nothing."""
        self.call("ew_free", address)

    def _view(self, address, nbytes):
        return js.Uint8Array.new(self.memory.buffer, address, nbytes)

    def write(self, address, data):
        """data: bytes-like, or a JavaScript ArrayBuffer or view of one."""
        if isinstance(data, JsProxy):
            data = _bytes_of(data)
            self._view(address, data.byteLength).set(data)
            return
        data = memoryview(data)
        if data.nbytes:
            self._view(address, data.nbytes).assign(
                data if data.ndim == 1 and data.itemsize == 1 else data.cast("B")
            )

    def read(self, address, nbytes):
        """A copy as bytes."""
        return self._view(address, nbytes).to_bytes()

    def copy(self, source, target, nbytes):
        """From address to address within the engine; they may overlap."""
        if nbytes:
            self._view(target, nbytes).set(self._view(source, nbytes))

    def load(self, plan):
        """Loads a plan (plan.Plan); PlanError when the engine refuses it."""
        return BrowserPlan(self, plan)

    def load_tensor(self, tensor):
        """Returns (address, owned).

        Sources that are JavaScript's (`read_js(offset, size) -> Uint8Array`) and files reach the
        engine without passing through Python.
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

    def _fill(self, address, source, offset, nbytes):
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

    def _fill_from_file(self, address, source, offset, nbytes):
        """By Emscripten's file system from whatever holds the file straight into the engine; False
        where that is not to be had.

        It reads through the file that Python has open: opening one again for each weight would
        fetch the whole file each time where the file system is another thread's (JupyterLite's
        drive).
        """
        try:
            from pyodide_js import FS

            stream = FS.getStreamChecked(source.fileno())
        except (ImportError, AttributeError, JsException):
            return False
        try:
            whole = js.Uint8Array.new(
                self.memory.buffer
            )  # all of it: Node's file system reads relative to the buffer, not to the view
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

    def _text(self, address):
        memory = js.Uint8Array.new(self.memory.buffer)
        return memory.slice(address, memory.indexOf(0, address)).to_bytes().decode()

    def _stack(self, value=None):
        """The engine's stack pointer, so that a call that trapped can be undone."""
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

    def run_timed(self):
        """As LoadedPlan's, with the page's clock: the engine has none in wasm."""
        now, times = js.performance.now, []
        for i in range(len(self.plan.kernels) - self.plan.init_count):
            t = now()
            self._do(self.engine.call("ew_plan_run_steps", self.handle, i, 1, 0))
            times.append((now() - t) / 1000)
        return times


def _memory(pages):
    """Reserves addresses for so many pages where the device lets us, else for fewer, which only
    limits how far the memory can grow.
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
        f"the browser gives no memory to the engine ({_words(last)})", "", "Close other tabs."
    )


def _compiled(module, where):
    """A WebAssembly.Module from one, or from bytes of Python's or JavaScript's."""
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
            f"a {type(module).__name__} is no WebAssembly module",
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


def _bytes_of(data):
    """A Uint8Array over a JavaScript ArrayBuffer or view."""
    if js.ArrayBuffer.isView(data):
        return js.Uint8Array.new(data.buffer, data.byteOffset, data.byteLength)
    if not hasattr(data, "byteLength"):
        raise TypeError("no bytes")
    return js.Uint8Array.new(data)


def _words(e):
    return str(getattr(e, "message", "") or e)
